"""The promise that a threshold keeps: a budget of errors, and the probability that it is exceeded."""

from __future__ import annotations

from typing import NamedTuple

from mindful.core.errors import InvalidParameterError, NullValueError

_KINDS = ("answers", "questions")
_LADDER = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Budgets that each call certifies beside the one asked for."""


class Promise(NamedTuple):
    """An upper bound on the share of wrong answers, among those given or all questions, with probability 1 - delta."""

    budget: float
    delta: float
    kind: str


def ladder(promise: Promise) -> list[Promise]:
    """Return the promises to test. The one asked for comes last, so that its budget is the newest."""
    return [promise._replace(budget=one) for one in _LADDER if one != promise.budget] + [promise]


def promise_of(budget: float | None, delta: float | None, kind: str | None) -> Promise:
    """Check the arguments of `calibrate`."""
    if budget is None or delta is None or kind is None:
        raise NullValueError(
            "error_budget, delta and budget_kind must not be null", "Leave them out for the defaults."
        )
    for name, value in (("error_budget", budget), ("delta", delta)):
        if not 0 < value < 1:
            raise InvalidParameterError(f"{name} is {value}", f"Pass {name} between 0 and 1, both excluded.")
    if kind not in _KINDS:
        raise InvalidParameterError(
            f'budget_kind is "{kind}"',
            "Pass answers to limit the wrong share of answers given, or questions to limit that of all questions.",
        )
    return Promise(budget, delta, kind)
