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
    """Check a model's files, which are on the server, and register the model. For administrators.

    Raises InvalidInputError, AlreadyExistsError, NotFoundError (no such file), NotReadyError (the provider's
    package is not installed).
    """
    return scalar("model_register", locals())


def model_unregister(name: str) -> Call[None]:
    """Remove a model from the registry, with an embedder's vectors; its files stay. For administrators.

    Raises NotFoundError, NotReadyError (it is a default, or the fallback or base of another model).
    """
    return scalar("model_unregister", locals(), convert=nothing)


def model_fallback_set(name: str, fallback: str | None) -> Call[None]:
    """Set the generator that is used when a generator is not confident; None removes it. For administrators.

    Raises InvalidInputError (not a generator, or a cycle of fallbacks), NotFoundError.
    """
    return scalar("model_fallback_set", locals(), convert=nothing)


def model_serve(name: str, *, server: str | None = DEFAULT, when_down: str = DEFAULT) -> Call[None]:
    """Have a server run a model's file for all connections; without a server each one runs it again.

    Raises InvalidInputError (not a model of llama_cpp, or the server runs another one), NotFoundError.
    """
    return scalar("model_serve", locals(), convert=nothing)


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
    """Check a LoRA adapter's file, which is on the server, and register it as a generator. For administrators.

    Pass either granted_to (names of roles) or trained_on, which maps the tenants whose texts it was trained on to their
    trainings. In the second case it serves these tenants only.

    Raises InvalidInputError, AlreadyExistsError, NotFoundError (no such base or file), NotReadyError (a text of the
    training was deleted).
    """
    return scalar("adapter_register", locals())


def adapter_share(adapter: str, granted_to: Sequence[str]) -> Call[list[str]]:
    """Share a trained adapter with roles, and return the tenants whose texts it was trained on. For administrators.

    Raises NotFoundError, NotReadyError (a tenant does not consent).
    """
    return scalar("adapter_share", locals())


def model_default_set(name: str, *, force: bool = DEFAULT, scope: str = DEFAULT) -> Call[None]:
    """Make a model the default of its kind for all (scope global, for administrators) or for the user.

    Raises InvalidInputError, NotAllowedError, NotFoundError, NotReadyError (an embedder that has not
    embedded all memories, unless force is true; an adapter whose tenants do not consent).
    """
    return scalar("model_default_set", locals(), convert=nothing)


def model_unload(*, name: str | None = DEFAULT) -> Call[int]:
    """Free the memory of a model that the connection has loaded, or of all, and return their number."""
    return scalar("model_unload", locals())
