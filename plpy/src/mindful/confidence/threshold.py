"""Thresholds that keep an error budget.

The guarantee is exact for answers that are drawn independently, whatever their distribution. For sessions of several
answers it is approximate: the number of answers is replaced by the effective number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mindful.confidence.metric import Check, unchecked

Array = Any

_STEP = 0.01
"""Share of the answers that each level adds to those above the level before."""
_HALVINGS = 40
_ENOUGH = 1.5
"""Minimum of answers above the first level, as a multiple of the fewest that can pass a test."""
_FEWEST_UNITS = 5
"""Minimum of sessions with several labels to estimate how far their errors are correlated."""
_CELLS = 100
"""Cells of the grid over the ways in which two strata can share the budget."""


class Certified(NamedTuple):
    """The lowest threshold that passed its test, the answers above it, and the upper bound of their error."""

    value: float | None
    answered: int | None
    wrong: int | None
    bound: float | None
    reason: str
    more_labels: int | None = None
    """Estimate of the further labels of a test with which a threshold would pass. None: no number is foreseen."""
    tested: bool = True
    """Whether the labels were looked at. They are not if there are too few for any result."""


def fewest(budget: float, delta: float) -> int:
    """Return the fewest answers, all right, that pass a test: the least n with (1 - budget)^n <= delta."""
    return math.ceil(math.log(delta) / math.log1p(-budget))


def upper_bound(wrong: int, answered: int, delta: float) -> float:
    """Return the upper bound of the share of wrong answers with confidence 1 - delta (Clopper and Pearson 1934)."""
    return _least_share(lambda share: float(_few(wrong, answered, np.array([share]))[0]), delta)


def levels(
    probabilities: Array,
    right: Array,
    budget: float,
    delta: float,
    tested: float,
    weights: Array | None = None,
) -> list[float]:
    """Choose the thresholds to test and their order, by answers that are not tested on.

    The first is the one whose test most probably passes. The share of wrong answers above it is the most standard
    errors, of a test on `tested` effective draws, below the budget. Each following one adds 1% of the answers. right
    may be probabilities instead of labels.
    """
    if not len(probabilities):
        return []
    order = np.argsort(-probabilities, kind="stable")
    mass = np.ones(len(order)) if weights is None else weights[order] / weights.mean()
    count = np.cumsum(mass)
    share = (np.cumsum(mass * (1 - right[order])) + 0.5) / (count + 1)
    # Above a level, labels of equal propensity are worth more draws than all labels together (Kish 1965).
    effective = count**2 / np.cumsum(mass**2)
    reached = effective * tested / effective[-1]
    distance = (budget - share) / np.sqrt(np.maximum(share * (1 - share), 0.02) / reached)
    distance[reached < _ENOUGH * fewest(budget, delta)] = -np.inf
    first = int(np.argmax(distance))
    places = np.arange(first, len(order), max(_STEP * len(order), 1)).astype(int)
    return sorted({float(value) for value in probabilities[order][places]}, reverse=True)


class Draws(NamedTuple):
    """Labels above a level: whether they are right, their weights, and the units that are drawn independently."""

    right: Array
    weights: Array
    units: Array
    alike: float = 0.0
    """Correlation of the errors of one unit, see `correlation`."""

    def p_value(self, budget: float) -> float:
        """Return the p-value of "more than the budget is wrong", for the weighted mean over all labels.

        Labels of the usual propensity are one stratum, all others another. The strata may share the budget in any way,
        so the p-value is the maximum over the ways (union of intersections; Spertus and Stark 2022) of the two
        p-values together (Fisher 1925).
        """
        usual, others = self._strata()
        if not len(others.right):
            return float(usual.tail(np.array([budget]))[0]) if len(usual.right) else 1.0
        alone, rest = float(usual.weights.sum()), float(others.weights.sum())
        allowed = budget * (alone + rest)
        shares = np.linspace(max(0.0, (allowed - rest) / alone), min(1.0, allowed / alone), _CELLS + 1)
        # Both tails fall with their share, so the corners of a cell bound it.
        left = np.clip((allowed - alone * shares[1:]) / rest, 0.0, 1.0)
        product = np.maximum(usual.tail(shares[:-1]) * others.tail(left), 1e-300)
        return float(min(1.0, (product * (1 - np.log(product))).max()))

    def refutes(self, budget: float, delta: float) -> bool:
        """Return whether so many errors are less probable than delta, if at most the budget is wrong."""
        answered = math.floor(self.effective() + 1e-9)
        wrong = math.floor(float(np.average(~self.right, weights=self.weights)) * answered) if answered else 0
        return wrong > 0 and 1 - float(_few(wrong - 1, answered, np.array([budget]))[0]) <= delta

    def bound(self, delta: float) -> float:
        """Return the least share whose test passes: the upper bound of the share of wrong answers."""
        return _least_share(self.p_value, delta)

    def tail(self, shares: Array) -> Array:
        """Return the probabilities of so few errors, if the shares of wrong answers are these."""
        answered = math.floor(self.effective() + 1e-9)
        wrong = math.ceil(float(np.average(~self.right, weights=self.weights)) * answered - 1e-9)
        return _few(wrong, answered, shares)

    def effective(self) -> float:
        """Return the number of independent answers that tell as much.

        It is the smaller of two. One is by the correlation of the errors of a unit, known from other answers. The
        other is by the spread of the errors between these units, with the quantiles of Student's t for their number
        (Korn and Graubard 1998).
        """
        if not len(self.right):
            return 0.0
        if len(self.right) == len(np.unique(self.units)) and self.weights.min() == self.weights.max():
            return float(len(self.right))
        codes = np.unique(self.units, return_inverse=True)[1]
        mass = np.bincount(codes, weights=self.weights)
        total, count = self.weights.sum(), len(mass)
        squares = (1 - self.alike) * (self.weights**2).sum() + self.alike * (mass**2).sum()
        known = total**2 / squares
        if count == len(self.right) or count < 2:
            return float(known if count > 1 else min(known, 1.0 / max(self.alike, 1e-9)))
        wrong = np.bincount(codes, weights=self.weights * ~self.right)
        spread = count / (count - 1) * ((wrong - wrong.sum() / total * mass) ** 2).sum() / total**2
        share = (wrong.sum() + 0.5) / (total + 1)
        seen = share * (1 - share) / max(spread, 1e-12)
        return float(min(known, seen) * (_student(len(self.right) - 1) / _student(count - 1)) ** 2)

    def _strata(self) -> tuple[Draws, Draws]:
        values, counts = np.unique(self.weights, return_counts=True)
        usual = self.weights == (values[counts.argmax()] if len(values) else 1.0)
        return self.at(usual), self.at(~usual)

    def at(self, places: Array) -> Draws:
        """Return the labels where a mask is true."""
        return Draws(self.right[places], self.weights[places], self.units[places], self.alike)


def correlation(right: Array, units: Array) -> float:
    """Return the correlation of the errors of one unit, by analysis of variance (Donner 1986).

    With fewer than five units of several labels it is 1, the worst case: each unit then counts as one answer.
    """
    codes, sizes = np.unique(units, return_inverse=True, return_counts=True)[1:]
    count, total = len(sizes), len(codes)
    if not (sizes > 1).any():
        return 0.0
    if (sizes > 1).sum() < _FEWEST_UNITS:
        return 1.0
    means = np.bincount(codes, weights=~right) / sizes
    between = (sizes * (means - (~right).mean()) ** 2).sum() / (count - 1)
    within = (sizes * means * (1 - means)).sum() / (total - count)
    size = (total - (sizes**2).sum() / total) / (count - 1)
    whole = between + (size - 1) * within
    return float(np.clip((between - within) / whole, 0.0, 1.0)) if whole > 0 else 0.0


def _student(freedom: int) -> float:
    """Return the 90% quantile of Student's t, by the expansion of Fisher and Cornish (1960)."""
    z = 1.2815515655446004
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def _few(wrong: int, answered: int, shares: Array) -> Array:
    """Return the probabilities of at most so many errors if the shares of wrong answers are these."""
    if wrong >= answered:
        return np.ones(len(shares))
    counts = np.arange(wrong + 1)
    # log of the binomial coefficients, by their recurrence
    ways = np.append(0.0, np.cumsum(np.log((answered - counts[:-1]) / (counts[:-1] + 1))))
    shares = np.clip(shares, 1e-12, 1 - 1e-12)[:, None]
    return np.minimum(
        np.exp(ways + counts * np.log(shares) + (answered - counts) * np.log1p(-shares)).sum(axis=1), 1.0
    )


def _least_share(p_value: Any, delta: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        low, high = (share, high) if p_value(share) > delta else (low, share)
    return high


def certify(
    probabilities: Array,
    draws: Draws,
    grid: Sequence[float],
    budget: float,
    delta: float,
    check: Check = unchecked,
) -> Certified:
    """Lower the threshold along the grid while the test rejects "more than the budget is wrong".

    The tests have a fixed order and level delta each. So P(share of wrong answers <= budget) >= 1 - delta without a
    correction for their number (Angelopoulos et al. 2021, arXiv 2110.01052).
    """
    if draws.effective() < fewest(budget, delta):
        return _too_few(draws, budget, delta)
    last = passed = None
    for value in grid:
        check()
        last = draws.at(probabilities >= value)
        if last.p_value(budget) > delta:
            break
        passed = value, last
    if passed is None:
        return _refused(draws, last, budget, delta)
    value, above = passed
    return Certified(
        value,
        len(above.right),
        int((~above.right).sum()),
        min(budget, above.bound(delta)),
        "certified by exact binomial tests in a fixed order",
        0,
    )


def _too_few(draws: Draws, budget: float, delta: float) -> Certified:
    needed, labels, count = fewest(budget, delta), len(draws.right), math.floor(draws.effective() + 1e-9)
    worth = "" if count == labels else f", worth {count} independent ones, as labels of a session are alike"
    reason = f"the test needs {needed} labels without an error and has {labels}{worth}"
    more = math.ceil((needed - count) * labels / count) if count else needed
    return _none(reason, max(more, 1))._replace(tested=False)


def _refused(draws: Draws, last: Draws | None, budget: float, delta: float) -> Certified:
    """Explain why no threshold passed, and estimate how many more labels would."""
    if last is None or not len(last.right):
        return _none("no answer of the test is as probable as those that the first test is meant for", None)
    answered, wrong = len(last.right), int((~last.right).sum())
    independent = math.floor(last.effective() + 1e-9)
    reason = f"{wrong} of the {answered} most probable answers are wrong, and the test "
    if independent < answered:
        reason += f"counts them as {independent} independent ones, as labels of a session are alike"
    else:
        most = _most(answered, budget, delta)
        reason += "cannot pass" if most is None else f"allows {most}"
    share = (wrong + 0.5) / (answered + 1)
    return _none(reason, _more(share, max(independent, 1), len(draws.right) / answered, budget, delta))


def _none(reason: str, more: int | None) -> Certified:
    return Certified(None, None, None, None, f"no threshold can be certified: {reason}", more)


def _more(share: float, independent: int, labels_each: float, budget: float, delta: float) -> int | None:
    """Return the labels still missing if the share of errors stays as it is, or None if it exceeds the budget."""
    if share >= budget:
        return None
    needed = independent
    while needed < 100 * independent + 1000 and not _passes(share, needed, budget, delta):
        needed += max(needed // 20, 1)
    return max(math.ceil((needed - independent) * labels_each), 1)


def _passes(share: float, answered: int, budget: float, delta: float) -> bool:
    return bool(_few(round(share * answered), answered, np.array([budget]))[0] <= delta)


def _most(answered: int, budget: float, delta: float) -> int | None:
    """Return the most errors among the answers with which the test passes, or None if it cannot pass."""
    low, high = -1, answered
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if _few(middle, answered, np.array([budget]))[0] <= delta else (low, middle)
        )
    return low if low >= 0 else None


def control(
    probabilities: Array,
    right: Array,
    budget: float,
    weights: Array | None = None,
    units: Array | None = None,
) -> Certified:
    """Return the least threshold that keeps the expected share of wrong answers among all questions.

    By conformal risk control (Angelopoulos et al. 2022, arXiv 2208.02814). The loss, an error that is shown, never
    grows with the threshold. So (errors + heaviest) / (sum of weights + heaviest) bounds its expectation, where
    heaviest is the greatest weight of a unit, as the next unit may be as heavy and all wrong.
    """
    mass = np.ones(len(right)) if weights is None else weights
    codes = np.unique(np.arange(len(right)) if units is None else units, return_inverse=True)[1]
    sizes = np.bincount(codes, weights=mass)
    heaviest = float(sizes.max(initial=1))
    order = np.argsort(-probabilities, kind="stable")
    descending, errors = probabilities[order], np.cumsum(mass[order] * ~right[order])
    total = mass.sum() + heaviest
    bounds = (errors + heaviest) / total
    # Answers of equal probability pass together.
    last = np.append(descending[1:] < descending[:-1], True)[: len(order)]
    passing = np.flatnonzero(last & (bounds <= budget))
    if heaviest / total > budget or not len(passing):
        needed, count = math.ceil(1 / budget) - 1, len(sizes)
        short = heaviest / total > budget
        reason = (
            f"the test needs {needed} labels and has {count}"
            if short
            else "the most probable answers are wrong"
        )
        return _none(reason, max(needed - count, 1) if short else None)
    at = int(passing[-1])
    return Certified(
        float(descending[at]),
        at + 1,
        int((~right[order][: at + 1]).sum()),
        float(bounds[at]),
        "by conformal risk control",
        0,
    )


def spent(delta: float, run: int) -> float:
    """Return the failure probability of the k-th test: delta (1 / k^2 - 1 / (k + 1)^2), in sum delta."""
    return delta * (1 / run**2 - 1 / (run + 1) ** 2)
