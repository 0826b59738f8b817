"""Checks of the sampling arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mindful.core.errors import InvalidParameterError, NullValueError
from mindful.core.ports import Penalties, Sampling
from mindful.generate.call import sampling_of

_ALL = 1 << 30
"""max_tokens for an answer that only the context limits."""


def full_sampling_of(
    max_tokens: int | None,
    temperature: float | None,
    top_p: float | None,
    top_k: int | None,
    min_p: float | None,
    penalties: tuple[float | None, float | None, float | None],
    logit_bias: str | None,
    stop: Sequence[str] | None,
    seed: int | None,
    top_logprobs: int | None,
) -> Sampling:
    """Check all sampling arguments and return them. penalties are presence, frequency and repetition."""
    sampling = sampling_of(_ALL if max_tokens == -1 else max_tokens, temperature, seed, stop)
    presence, frequency, repeat = penalties
    return replace(
        sampling,
        top_p=within("top_p", top_p, 0, 1),
        top_k=int(within("top_k", top_k, 0, 1 << 30)),
        min_p=within("min_p", min_p, 0, 1),
        penalties=Penalties(
            within("presence_penalty", presence, -2, 2),
            within("frequency_penalty", frequency, -2, 2),
            within("repeat_penalty", repeat, 0.1, 10),
        ),
        biases=_biases(logit_bias),
        alternatives=None if top_logprobs is None else int(within("top_logprobs", top_logprobs, 0, 20)),
    )


def parsed(name: str, text: str) -> Any:
    """Parse JSON. Error 22023: it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidParameterError(f"{name} is nested too deeply", "Flatten it.") from None


def within(name: str, value: float | None, low: float, high: float) -> float:
    """Return a number between low and high. Errors: 22004 (NULL), 22023 (out of range)."""
    if value is None:
        raise NullValueError(f"{name} is null", f"Pass a number between {low} and {high}.")
    if not low <= value <= high:
        raise InvalidParameterError(f"{name} is {value}", f"It must be between {low} and {high}.")
    return value


def _biases(text: str | None) -> tuple[tuple[int, float], ...]:
    given = parsed("logit_bias", text or "{}")
    numbers = isinstance(given, dict) and all(
        key.isdecimal() and len(key) < 10 and type(value) in (int, float) and -100 <= value <= 100
        for key, value in given.items()
    )
    if not numbers or len(given) > 1024:
        raise InvalidParameterError(
            "logit_bias is not an object of at most 1024 token ids with numbers between -100 and 100",
            'Pass an object such as {"42": -100}.',
        )
    return tuple((int(key), float(value)) for key, value in given.items())
