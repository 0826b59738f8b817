"""Providers: modules that load and run models, found by the entry points of the group `mindful.providers`."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Protocol, cast

from mindful.core.errors import InvalidParameterError, MissingPackageError
from mindful.core.extra import extra
from mindful.core.ports import Host, Interrupts, Model, ModelFacts, ModelSpec

KINDS = ("generator", "embedder", "reranker")
GROUP = "mindful.providers"
OWN = {
    "llama_cpp": "mindful.models.providers.llama",
    "openai": "mindful.models.providers.openai",
    "sentence_transformers": "mindful.models.providers.sentence_transformers",
}
"""The entry points of this distribution. They are repeated here because reading metadata takes 20 ms."""


class Provider(Protocol):
    """The functions of a provider's module; `inspect_adapter` is optional.

    A distribution adds a provider by an entry point in the group `mindful.providers`. The entry point's name is the
    provider's name in `model_register`; its value is the module.
    """

    def inspect(self, kind: str, source: str, options: dict[str, object], interrupts: Host) -> ModelFacts:
        """Check a model's files and options, and return their facts."""

    def load(self, spec: ModelSpec, interrupts: Host) -> Model:
        """Load a model into this process. It uses `interrupts` in methods without interrupts of their own."""


class AdapterProvider(Provider, Protocol):
    """A provider whose generators accept adapters."""

    def inspect_adapter(
        self, base: ModelSpec, source: str, options: dict[str, object], interrupts: Interrupts
    ) -> ModelFacts:
        """Load an adapter with its base once, and return the facts of its file."""


@functools.cache
def module(provider: str) -> Provider:
    """Import a provider's module. Error 22023: no distribution has such an entry point."""
    # PyTorch imports triton if it is there. Its LLVM and that of PostgreSQL's jit together crash the server.
    sys.modules.setdefault("triton", None)  # type: ignore[arg-type]
    if provider in OWN:
        with extra("server"):
            return cast(Provider, importlib.import_module(OWN[provider]))
    from importlib import metadata  # 20 ms, for providers of other distributions

    entries = metadata.entry_points(group=GROUP)
    found = {entry.value: entry for entry in entries if entry.name == provider}
    if not found:
        names = sorted({*OWN, *(entry.name for entry in entries)})
        raise InvalidParameterError(
            f'there is no provider "{provider}"',
            f"Providers are {', '.join(names)}. A Python package in the server's environment can add others "
            f"by an entry point in the group {GROUP}.",
        )
    if len(found) > 1:
        raise InvalidParameterError(
            f'provider "{provider}" is defined by {len(found)} Python packages',
            f"Uninstall all but one of the packages that define {', '.join(sorted(found))}.",
        )
    (entry,) = found.values()
    try:
        return cast(Provider, entry.load())
    except ImportError as error:
        raise MissingPackageError(
            f'provider "{provider}" cannot be imported: {error}',
            "Reinstall its Python package in the server's Python environment, and reconnect.",
        ) from None


def load(spec: ModelSpec, interrupts: Host) -> Model:
    """Load a registered model with its provider."""
    return module(spec.provider).load(spec, interrupts)
