"""Thresholds that keep an error budget, with a guarantee for any distribution of the answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindful.metric import Check, unchecked

Array = Any

_STEP = 0.01
"""Share of the answers that each further level lets through beside those of the one before."""
_HALVINGS = 60
_LOG_FACTORIAL = np.vectorize(lambda count: math.lgamma(count + 1), otypes=[float])
_ENOUGH = 1.5
"""How many times the fewest answers that can pass a test the first level lets through."""


@dataclass(frozen=True)
class Certified:
    """The lowest threshold that passed its test, on how many answers, and the bound of the error that it keeps."""

    value: float | None
    answered: int | None
    wrong: int | None
    bound: float | None
    reason: str


def fewest(budget: float, delta: float) -> int:
    """Answers, all right, that it takes to show that a budget is kept: the least n with (1 - budget)^n <= delta."""
    return math.ceil(math.log(delta) / math.log1p(-budget))


def upper_bound(wrong: int, answered: int, delta: float) -> float:
    """Bound the share of wrong answers from above with confidence 1 - delta (Clopper and Pearson 1934)."""
    if wrong >= answered:
        return 1.0
    counts = np.arange(wrong + 1)
    ways = math.lgamma(answered + 1) - _LOG_FACTORIAL(counts) - _LOG_FACTORIAL(answered - counts)
    low, high = wrong / answered, 1.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        few = np.exp(ways + counts * math.log(share) + (answered - counts) * math.log1p(-share)).sum()
        low, high = (share, high) if few > delta else (low, share)
    return high


def levels(probabilities: Array, right: Array, budget: float, delta: float, tested: int) -> list[float]:
    """Choose thresholds to test, in order, by answers that are not tested on.

    The first is the one whose test will most probably pass: the share of wrong answers above it is the most standard
    errors, of a test on `tested` answers, below the budget. From there on each lets one per cent more through.
    """
    order = np.argsort(-probabilities, kind="stable")
    count = np.arange(1, len(order) + 1)
    share = (np.cumsum(~right[order]) + 0.5) / (count + 1)
    reached = count * tested / len(order)
    distance = (budget - share) / np.sqrt(np.maximum(share * (1 - share), 0.02) / reached)
    distance[reached < _ENOUGH * fewest(budget, delta)] = -np.inf
    first = int(np.argmax(distance))
    places = np.arange(first, len(order), max(_STEP * len(order), 1)).astype(int)
    return sorted({float(value) for value in probabilities[order][places]}, reverse=True)


def kept(weights: Array, luck: Array) -> Array:
    """Choose labels so that each answer is among them with the same probability, by rejection (von Neumann 1951).

    Weights are inverse propensities. The exact tests are of a simple random sample, which answers that were labelled
    more rarely than others, taken together with these, are not.
    """
    return luck * weights.max(initial=0) < weights


def certify(
    probabilities: Array,
    right: Array,
    grid: list[float],
    budget: float,
    delta: float,
    weights: Array | None = None,
    check: Check = unchecked,
) -> Certified:
    """Lower the threshold along the grid for as long as the test of "more than the budget is wrong" rejects.

    A fixed sequence of tests, each at level delta: P(share of wrong answers <= budget) >= 1 - delta without a
    correction for their number (Angelopoulos et al. 2021, arXiv 2110.01052).
    """
    found = Certified(None, None, None, None, "")
    mass, luck = np.ones(len(right)) if weights is None else weights, _luck(len(right))
    for value in grid:
        check()
        chosen = probabilities >= value
        chosen[chosen] = kept(mass[chosen], luck[chosen])
        answered, wrong = int(chosen.sum()), int((~right[chosen]).sum())
        bound = upper_bound(wrong, answered, delta) if answered else 1.0
        if bound > budget:
            break
        found = Certified(value, answered, wrong, bound, "certified by exact binomial tests in a fixed order")
    if found.value is not None:
        return found
    needed = fewest(budget, delta)
    if len(probabilities) < needed:
        why = f"{needed} labels without error needed, {len(probabilities)} there"
    else:
        why = f"{wrong} of the {answered} most probable answers are wrong, {_most(answered, budget, delta)} may be"
    return Certified(None, None, None, None, f"no threshold certifiable: {why}")


def _luck(count: int) -> Array:
    """Draw what decides which labels are kept: the same for the same labels, whatever they say."""
    return np.random.default_rng(0).random(count)


def _most(answered: int, budget: float, delta: float) -> int | str:
    """Count the errors among so many answers with which the test still passes."""
    most = -1
    while upper_bound(most + 1, answered, delta) <= budget:
        most += 1
    return most if most >= 0 else "not even none"


def control(probabilities: Array, right: Array, budget: float, weights: Array | None = None) -> Certified:
    """Find the least threshold that keeps the share of wrong answers among all questions, in the mean.

    Conformal risk control (Angelopoulos et al. 2022, arXiv 2208.02814): the loss, an error that is shown, never grows
    with the threshold, so the mean over n labels plus 1 / (n + 1) bounds its expectation.
    """
    if weights is not None:
        chosen = kept(weights, _luck(len(right)))
        probabilities, right = probabilities[chosen], right[chosen]
    order = np.argsort(-probabilities, kind="stable")
    descending, errors = probabilities[order], np.cumsum(~right[order])
    count = len(descending)
    bounds = (errors + 1) / (count + 1)
    # Answers of one probability are let through together.
    last = np.append(descending[1:] < descending[:-1], True)
    passing = np.flatnonzero(last & (bounds <= budget))
    if 1 / (count + 1) > budget or not len(passing):
        needed = math.ceil(1 / budget) - 1
        why = (
            f"{needed} labels needed, {count} there"
            if count < needed
            else "the most probable answers are wrong"
        )
        return Certified(None, None, None, None, f"no threshold certifiable: {why}")
    at = int(passing[-1])
    return Certified(
        float(descending[at]), at + 1, int(errors[at]), float(bounds[at]), "by conformal risk control"
    )


def spent(delta: float, run: int) -> float:
    """Failure probability of the k-th test of a promise, so that all together fail with delta: 6 delta / (pi k)^2."""
    return 6 * delta / (math.pi * run) ** 2
