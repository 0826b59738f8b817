"""Checks of the sampling arguments."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mindful.core.errors import ContextLengthError, InvalidParameterError, NullValueError
from mindful.core.jsontext import UnreadableJSONError, loads
from mindful.core.ports import Penalties, Sampling

_MOST_STOPS, _LONGEST_STOP = 64, 256
"""Limits, because every token is compared with all stop strings."""
_LONGEST_JSON = 1 << 22
"""Bytes of JSON that are parsed at once: no cancel is heard meanwhile."""
_ALL = 1 << 30
"""max_tokens for an answer that only the context limits."""


class Drawing(NamedTuple):
    """How tokens are drawn at a temperature above 0, and what repeated tokens lose: arguments of SQL functions."""

    top_p: float | None
    top_k: int | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repeat_penalty: float | None

    @classmethod
    def among(cls, arguments: tuple[Any, ...]) -> Drawing:
        """Return those of a function's arguments, which it names alike."""
        return cls(*(getattr(arguments, name) for name in cls._fields))

    def of(self, sampling: Sampling) -> Sampling:
        """Check the arguments and return the sampling with them."""
        return sampling._replace(
            top_p=within("top_p", self.top_p, 0, 1),
            top_k=int(within("top_k", self.top_k, 0, 1 << 30)),
            min_p=within("min_p", self.min_p, 0, 1),
            penalties=Penalties(
                within("presence_penalty", self.presence_penalty, -2, 2),
                within("frequency_penalty", self.frequency_penalty, -2, 2),
                within("repeat_penalty", self.repeat_penalty, 0.1, 10),
            ),
        )


def sampling_of(
    max_tokens: int | None, temperature: float | None, seed: int | None, stop: Sequence[str] | None = ()
) -> Sampling:
    """Check the sampling arguments and return them as a Sampling."""
    if max_tokens is None or temperature is None:
        raise NullValueError("max_tokens or temperature is null", "Leave them out to use the defaults.")
    if max_tokens < 1:
        raise InvalidParameterError(f"max_tokens is {max_tokens}", "It must be at least 1.")
    if not 0 <= temperature <= 10:
        raise InvalidParameterError(f"temperature is {temperature}", "It must be between 0 and 10.")
    if seed is not None and seed < 0:
        raise InvalidParameterError(f"seed is {seed}", "It must be at least 0.")
    if not all(isinstance(text, str) for text in filter(None, stop or ())):
        raise InvalidParameterError(
            "stop has more than one dimension", "Pass a one-dimensional array of texts."
        )
    stops = tuple(filter(None, stop or ()))
    if len(stops) > _MOST_STOPS or any(len(text) > _LONGEST_STOP for text in stops):
        raise ContextLengthError(
            f"stop has more than {_MOST_STOPS} texts, or a text of more than {_LONGEST_STOP} characters",
            "Pass fewer or shorter texts.",
        )
    return Sampling(max_tokens, temperature, seed, stops)


def full_sampling_of(
    max_tokens: int | None,
    temperature: float | None,
    drawing: Drawing,
    logit_bias: str | None,
    stop: Sequence[str] | None,
    seed: int | None,
    top_logprobs: int | None,
) -> Sampling:
    """Check all sampling arguments and return them."""
    sampling = sampling_of(most(max_tokens), temperature, seed, stop)
    return drawing.of(sampling)._replace(
        biases=_biases(logit_bias),
        alternatives=None if top_logprobs is None else int(within("top_logprobs", top_logprobs, 0, 20)),
    )


def most(max_tokens: int | None) -> int | None:
    """Return max_tokens, where -1 stands for what the context has room for."""
    return _ALL if max_tokens == -1 else max_tokens


def parsed(name: str, text: str, hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Parse JSON; a hook makes its objects. Errors: 22023 (nested too deeply), 54000 (too long)."""
    if len(text.encode("utf-8", errors="replace")) > _LONGEST_JSON:
        raise ContextLengthError(
            f"{name} has more than {_LONGEST_JSON} bytes", "Split it into several calls."
        )
    collects = gc.isenabled()
    gc.disable()  # nothing of it can be garbage, and to look for it takes longer than to parse
    try:
        return loads(text, object_hook=hook)
    except UnreadableJSONError as error:
        raise error.about(name) from None
    finally:
        if collects:
            gc.enable()


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
