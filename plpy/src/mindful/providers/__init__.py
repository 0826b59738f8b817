"""Providers: the libraries that models are loaded with, each in a module of its name."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from mindful.errors import InvalidParameterError
from mindful.ports import Interrupts, Model, ModelFacts, ModelSpec

KINDS = ("generator", "embedder", "reranker")
PROVIDERS = {
    "llama_cpp": "mindful.providers.llama",
    "sentence_transformers": "mindful.providers.sentence",
    "scripted": "mindful.providers.scripted",
}


class Provider(Protocol):
    """What a provider's module offers."""

    def inspect(self, kind: str, source: str, options: dict[str, object]) -> ModelFacts:
        """Check a model's files and options, and tell what they hold."""

    def load(self, spec: ModelSpec, interrupts: Interrupts) -> Model:
        """Load a model into this process; it looks for interrupts wherever no call passes any."""


def module(provider: str) -> Provider:
    """Import a provider: the cost of its library is paid by those who use it."""
    if provider not in PROVIDERS:
        raise InvalidParameterError(
            f'there is no provider "{provider}"', f"Providers are {', '.join(PROVIDERS)}."
        )
    return cast(Provider, importlib.import_module(PROVIDERS[provider]))


def load(spec: ModelSpec, interrupts: Interrupts) -> Model:
    """Load a registered model with its provider."""
    return module(spec.provider).load(spec, interrupts)
