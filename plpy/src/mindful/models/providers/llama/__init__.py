"""Models of llama.cpp: any GGUF file, generator or embedder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from mindful.core.errors import CorruptedModelError, InvalidParameterError
from mindful.core.ports import Generator, Interrupts, Message, Model, ModelFacts, ModelSpec, Single
from mindful.models.providers.llama.adapter import Adapter, check_file
from mindful.models.providers.llama.library import llama
from mindful.models.providers.llama.probe import probe
from mindful.models.providers.llama.weights import Weights
from mindful.models.providers.options import check_known, file_sha256, flag, integer
from mindful.models.providers.trial import TRIAL_CONTEXT, answers, family, judge

_ANSWERING = ("system_prompt", "layout", "example", "acknowledge", "prompt_lookup", "dry_multiplier")
_OPTIONS = {
    "generator": ("context_length", "threads", "repack", "flash_attention", "template", "stop", *_ANSWERING),
    "embedder": ("context_length", "threads", "repack", "vector_type"),
}
_FLAGS = "repack", "flash_attention"
"""Options that are true or false."""

_LONGEST_GUESS = 32
"""Tokens. In batches of 60 and more llama.cpp's attention rounds differently, which would change answers."""
_LARGEST_DRY = 10
_DEFAULT_CONTEXT = 2048
"""Default context length. The KV cache is private memory of each backend (23 MB per 1,000 tokens at 135M)."""


def inspect(kind: str, source: str, options: Mapping[str, Any], interrupts: Interrupts) -> ModelFacts:
    """Load a GGUF file once and return its facts."""
    if kind not in _OPTIONS:
        raise InvalidParameterError(
            f"llama_cpp does not support kind {kind}",
            "Register a folder with the provider sentence_transformers.",
        )
    check_known(options, _OPTIONS[kind])
    for name in _FLAGS:
        flag(options, name)
    probe(ModelSpec("", kind, "llama_cpp", source, "", options), interrupts)
    weights = Weights(source, interrupts=interrupts)
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
            _lookup(options)
            _dry(options)
            from mindful.models.providers.llama.template import ChatTemplate

            ChatTemplate(weights, options.get("template")).encode([Message("user", "Hi")])
        facts = ModelFacts(
            sha256=file_sha256(source, interrupts),
            context_length=context_length,
            dims=llama.llama_model_n_embd_out(weights.model) if pooled else None,
            license=weights.metadata("general.license"),
        )
        preset, remarks = _preset(weights, options) if kind == "generator" else ({}, [])
    finally:
        weights.close()
    return _tried(source, options, facts, preset, remarks, interrupts) if kind == "generator" else facts


def _preset(weights: Weights, options: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the options of the model's family that the file and the caller left open."""
    if "template" in options or weights.chat_template() is not None:
        return {}, []
    if preset := dict(family(weights)):
        return {key: value for key, value in preset.items() if key not in options}, []
    return {}, [
        ("the file has no chat template", "Pass the option template, or use an instruction-tuned file.")
    ]


def _tried(
    source: str,
    options: Mapping[str, Any],
    facts: ModelFacts,
    preset: dict[str, Any],
    remarks: list[tuple[str, str]],
    interrupts: Interrupts,
) -> ModelFacts:
    """Ask the model three questions, and add what they show to the facts."""
    length = min(facts.context_length or TRIAL_CONTEXT, TRIAL_CONTEXT)
    spec = ModelSpec(
        "", "generator", "llama_cpp", source, "", {**options, **preset, "context_length": length}
    )
    generator = cast(Generator, load(spec, interrupts))
    try:
        stops, more = judge(list(answers(generator, interrupts)))
    finally:
        generator.close()
    if stops and "stop" not in options:
        preset["stop"] = [*preset.get("stop", ()), *stops]
    return facts._replace(found=preset, warnings=(*remarks, *more))


def inspect_adapter(
    base: ModelSpec, source: str, options: Mapping[str, Any], interrupts: Interrupts
) -> ModelFacts:
    """Load an adapter with its base, evaluate a prompt, and return the facts of the file."""
    check_known(options, ("scale", *_ANSWERING))
    check_file(source)
    sha256 = file_sha256(source, interrupts)
    spec = base._replace(adapter=source, sha256=sha256, options={**base.options, **options})
    probe(spec, interrupts)
    generator = cast(Generator, load(spec, interrupts))
    try:
        tokens = generator.encode([Message("user", "Hi")])
        if not math.isfinite(*generator.next_logprobs(tokens, ["Hi"], Single(interrupts))):
            raise CorruptedModelError(
                f'with the adapter file "{source}" the model computes infinite or undefined numbers',
                "Train the adapter again.",
            )
        return ModelFacts(sha256, generator.context_length, dims=None, license=None)
    finally:
        generator.close()


def load(spec: ModelSpec, interrupts: Interrupts) -> Model:
    """Map a registered file and create a context for it."""
    adapter = spec.adapter and Adapter(spec.adapter, spec.sha256, float(spec.options["scale"]))
    weights = Weights(spec.source, adapter or None, interrupts, flag(spec.options, "repack"))
    try:
        return _open(spec, weights, interrupts)
    except BaseException:
        weights.close()
        raise


def _open(spec: ModelSpec, weights: Weights, interrupts: Interrupts) -> Model:
    context_length, threads = _settings(weights, spec.options)
    # Imported here, so that embedders load without Jinja.
    if spec.kind == "embedder":
        from mindful.models.providers.llama.embedder import LlamaEmbedder

        return LlamaEmbedder(weights, context_length, threads)
    from mindful.models.providers.llama.generator import LlamaGenerator

    interrupts.check()  # the import takes 0.1 s, and so does the context
    lookup = _lookup(spec.options)
    return LlamaGenerator(
        weights,
        context_length,
        threads,
        lookup=lookup,
        template=spec.options.get("template"),
        stop=spec.options.get("stop", ()),
        dry=_dry(spec.options),
        flash=flag(spec.options, "flash_attention", default=lookup > 0),
    )


def _lookup(options: Mapping[str, Any]) -> int:
    guessed = integer(options, "prompt_lookup", 0, 0, _LONGEST_GUESS)
    if guessed and not flag(options, "flash_attention", default=True):
        raise InvalidParameterError(
            f"option prompt_lookup is {guessed} and flash_attention false",
            "Leave flash_attention out of the model's options, or set it to true.",
        )
    return guessed


def _dry(options: Mapping[str, Any]) -> float:
    value = options.get("dry_multiplier", 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST_DRY:
        raise InvalidParameterError(
            f"option dry_multiplier is {value!r}", f"It must be a number between 0 and {_LARGEST_DRY}."
        )
    return float(value)


def _settings(weights: Weights, options: Mapping[str, Any]) -> tuple[int, int]:
    trained = weights.trained_context
    default = min(trained, _DEFAULT_CONTEXT)
    # One thread by default: other connections need the other cores, and a single text gains little.
    return (
        integer(options, "context_length", default, 16, trained),
        integer(options, "threads", 1, 1, 64),
    )
