"""How good probabilities are, with bootstrap intervals.

Weights are inverse propensities: where some answers were labelled more rarely than others, the sums stand for all of
them (Horvitz and Thompson 1952), and the means are Hajek's ratios of such sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Check = Callable[[], object]
"""Called between two steps of a long computation: raises if a cancel is pending."""
_BINS = 10
_RESAMPLES = 1000


def unchecked() -> None:
    """Let a computation go on."""


def auroc(right: Array, probabilities: Array, weights: Array | None = None) -> float:
    """Probability that a right answer ranks above a wrong one; ties count half (Mann and Whitney 1947)."""
    mass = _mass(right, weights)
    values, places = np.unique(probabilities, return_inverse=True)
    good = np.bincount(places, weights=right * mass, minlength=len(values))
    bad = np.bincount(places, weights=~right * mass, minlength=len(values))
    if not good.sum() or not bad.sum():
        return float("nan")
    below = np.cumsum(bad) - bad
    return float((good * (below + bad / 2)).sum() / (good.sum() * bad.sum()))


def calibration_error(right: Array, probabilities: Array, weights: Array | None = None) -> float:
    """Expected calibration error over ten bins of as many answers: mean |share of right ones - mean probability|."""
    mass = _mass(right, weights)
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, _BINS) if len(part)]
    gaps = [abs(((right[part] - probabilities[part]) * mass[part]).sum()) for part in parts]
    return float(sum(gaps) / mass.sum())


def brier(right: Array, probabilities: Array, weights: Array | None = None) -> float:
    """Mean squared error of the probability (Brier 1950)."""
    return float(np.average((probabilities - right) ** 2, weights=weights))


def log_loss(right: Array, probabilities: Array, weights: Array | None = None) -> float:
    """Mean -log probability of what was the case."""
    return float(np.average(log_losses(right, probabilities), weights=weights))


def _mass(right: Array, weights: Array | None) -> Array:
    return np.ones(len(right)) if weights is None else weights


def log_losses(right: Array, probabilities: Array) -> Array:
    """Minus the log-probability of what was the case, of each answer."""
    bounded = np.clip(probabilities, 1e-6, 1 - 1e-6)
    return -np.where(right, np.log(bounded), np.log1p(-bounded))


def noise_floor(right: Array) -> float:
    """Calibration error that perfect probabilities would show on so many answers."""
    share = right.mean()
    return float(0.8 * np.sqrt(share * (1 - share) * _BINS / len(right)))


Measure = Callable[..., float]
MEASURES: dict[str, Measure] = {
    "auroc": auroc,
    "ece": calibration_error,
    "brier": brier,
    "log_loss": log_loss,
}


def interval(
    measure: Measure,
    right: Array,
    probabilities: Array,
    groups: Array | None = None,
    weights: Array | None = None,
    check: Check = unchecked,
) -> tuple[float, float, float]:
    """Return a figure with the bounds of its 95% interval, by resampling answers, or groups of them."""
    random = np.random.default_rng(0)
    mass = _mass(right, weights)
    members = _members(groups, len(right))
    found = []
    for _ in range(_RESAMPLES):
        check()
        picked = random.integers(0, len(members), len(members))
        places = np.concatenate([members[at] for at in picked]) if groups is not None else picked
        found.append(measure(right[places], probabilities[places], mass[places]))
    low, high = np.nanpercentile(found, [2.5, 97.5])
    return measure(right, probabilities, mass), float(low), float(high)


def _members(groups: Array | None, count: int) -> list[Array]:
    if groups is None:
        return [np.array([at]) for at in range(count)]
    return [np.flatnonzero(groups == group) for group in np.unique(groups)]
