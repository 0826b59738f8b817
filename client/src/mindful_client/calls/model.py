"""Models."""

from __future__ import annotations

from collections.abc import Sequence

from mindful_client.calls.statement import DEFAULT, Call, Json, nothing, scalar


def model_register(
    name: str,
    kind: str,
    provider: str,
    source: str,
    *,
    options: Json = DEFAULT,
    granted_to: Sequence[str] = DEFAULT,
) -> Call[str]:
    """Check a model's files, which lie on the server, and enter it in the registry. For administrators.

    Raises InvalidInputError, AlreadyExistsError, NotFoundError (no such file), NotReadyError (the provider's
    package is not installed).
    """
    return scalar("model_register", locals())


def adapter_register(
    name: str,
    base: str,
    source: str,
    *,
    scale: float = DEFAULT,
    options: Json = DEFAULT,
    granted_to: Sequence[str] = DEFAULT,
    trained_on: Json = DEFAULT,
) -> Call[str]:
    """Check a LoRA adapter's file, which lies on the server, and enter it as a generator. For administrators.

    Give granted_to, roles, or trained_on, an object of the tenants whose texts it was trained on and their
    trainings: it serves these tenants alone.

    Raises InvalidInputError, AlreadyExistsError, NotFoundError (no such base or file), NotReadyError (a text that
    it was trained on was forgotten).
    """
    return scalar("adapter_register", locals())


def adapter_share(adapter: str, granted_to: Sequence[str]) -> Call[list[str]]:
    """Offer a trained adapter to roles, and return the tenants whose texts it was trained on. For administrators.

    Raises NotFoundError, NotReadyError (a tenant does not consent).
    """
    return scalar("adapter_share", locals())


def model_default_set(name: str, *, force: bool = DEFAULT, scope: str = DEFAULT) -> Call[None]:
    """Make a model the default of its kind for all (scope global, for administrators) or for the user.

    Raises InvalidInputError, NotAllowedError, NotFoundError, NotReadyError (an embedder that has not embedded what
    is there: force makes it the default all the same; an adapter whose tenants do not consent).
    """
    return scalar("model_default_set", locals(), convert=nothing)


def model_unload(*, name: str | None = DEFAULT) -> Call[int]:
    """Give back the memory of a model that the connection has loaded, or of all; return how many."""
    return scalar("model_unload", locals())
