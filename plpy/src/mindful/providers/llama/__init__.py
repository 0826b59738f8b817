"""Models of llama.cpp: any GGUF file, generator or embedder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindful.errors import InvalidParameterError
from mindful.ports import Embedder, Generator, Message, ModelFacts, ModelSpec
from mindful.providers.llama.library import llama
from mindful.providers.llama.weights import Weights
from mindful.providers.options import check_known, file_sha256, integer

_OPTIONS = {
    "generator": ("context_length", "threads", "system_prompt", "layout", "template", "stop"),
    "embedder": ("context_length", "threads"),
}

_DEFAULT_CONTEXT = 2048
"""A longer context is an option: its KV cache is private memory of every backend (23 MB a 1,000 tokens at 135M)."""


def inspect(kind: str, source: str, options: Mapping[str, Any]) -> ModelFacts:
    """Load a GGUF file once, and tell what it holds."""
    check_known(options, _OPTIONS[kind])
    weights = Weights(source)
    try:
        context_length, _ = _settings(weights, options)
        pooled = any(
            weights.metadata(f"{weights.metadata('general.architecture')}.pooling_type") == str(pooling)
            for pooling in (1, 2, 3)
        )
        if pooled != (kind == "embedder"):
            raise InvalidParameterError(
                f'the model file "{source}" is {"an embedder" if pooled else "not an embedder"}',
                f"Register it with kind => '{'embedder' if pooled else 'generator'}'.",
            )
        if kind == "generator":
            from mindful.providers.llama.template import ChatTemplate

            ChatTemplate(weights, options.get("template")).encode([Message("user", "Hi")])
        return ModelFacts(
            sha256=file_sha256(source),
            context_length=context_length,
            dims=llama.llama_model_n_embd_out(weights.model) if pooled else None,
            licence=weights.metadata("general.license"),
        )
    finally:
        weights.close()


def load(spec: ModelSpec) -> Generator | Embedder:
    """Map a registered file and make a context for it."""
    weights = Weights(spec.source)
    try:
        return _open(spec, weights, *_settings(weights, spec.options))
    except BaseException:
        weights.close()
        raise


def _open(spec: ModelSpec, weights: Weights, context_length: int, threads: int) -> Generator | Embedder:
    # Imported here, as an embedder's first call should not pay for Jinja.
    if spec.kind == "embedder":
        from mindful.providers.llama.embedder import LlamaEmbedder

        return LlamaEmbedder(weights, context_length, threads)
    from mindful.providers.llama.generator import LlamaGenerator

    return LlamaGenerator(
        weights,
        context_length,
        threads,
        template=spec.options.get("template"),
        stop=spec.options.get("stop", ()),
    )


def _settings(weights: Weights, options: Mapping[str, Any]) -> tuple[int, int]:
    trained = weights.trained_context
    default = min(trained, _DEFAULT_CONTEXT)
    # One thread a backend: the other cores serve other connections, and a single text gains little.
    return (
        integer(options, "context_length", default, 16, trained),
        integer(options, "threads", 1, 1, 64),
    )
