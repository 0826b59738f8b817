"""Metrics of probabilities, with bootstrap intervals.

Weights are inverse propensities, so weighted sums estimate those over all answers (Horvitz and Thompson 1952).
Means are Hajek's ratios of such sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Check = Callable[[], object]
"""Called between two steps of a long computation. It raises if a cancel is pending."""
BINS = 10
_RESAMPLES = 1000


def unchecked() -> None:
    """Do not check for cancels."""


def auroc(right: Array, probabilities: Array, weights: Array | None = None) -> float:
    """Return the probability that a right answer ranks above a wrong one. Ties count half (Mann and Whitney 1947)."""
    mass = _mass(right, weights)
    values, places = np.unique(probabilities, return_inverse=True)
    good = np.bincount(places, weights=right * mass, minlength=len(values))
    bad = np.bincount(places, weights=~right * mass, minlength=len(values))
    if not good.sum() or not bad.sum():
        return float("nan")
    below = np.cumsum(bad) - bad
    return float((good * (below + bad / 2)).sum() / (good.sum() * bad.sum()))


def calibration_error(right: Array, probabilities: Array, weights: Array | None = None) -> float:
    """Return the expected calibration error over ten bins of equal size: mean |share right - mean probability|."""
    mass = _mass(right, weights)
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, BINS) if len(part)]
    gaps = [abs(((right[part] - probabilities[part]) * mass[part]).sum()) for part in parts]
    return float(sum(gaps) / mass.sum())


def brier(right: Array, probabilities: Array, weights: Array | None = None) -> float:
    """Return the mean squared error of the probabilities (Brier 1950)."""
    return float(np.average((probabilities - right) ** 2, weights=weights))


def log_loss(right: Array, probabilities: Array, weights: Array | None = None) -> float:
    """Return the mean negative log-probability of the labels."""
    return float(np.average(log_losses(right, probabilities), weights=weights))


def _mass(right: Array, weights: Array | None) -> Array:
    return np.ones(len(right)) if weights is None else weights


def log_losses(right: Array, probabilities: Array) -> Array:
    """Return the negative log-probability of each label."""
    bounded = np.clip(probabilities, 1e-6, 1 - 1e-6)
    return -np.where(right, np.log(bounded), np.log1p(-bounded))


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
    """Return a metric and the bounds of its 95% interval, by resampling answers or groups of them."""
    random = np.random.default_rng(0)
    mass = _mass(right, weights)
    members = _members(groups, len(right))
    resampled = []
    for _ in range(_RESAMPLES):
        check()
        picked = random.integers(0, len(members), len(members))
        places = np.concatenate([members[at] for at in picked]) if groups is not None else picked
        resampled.append(measure(right[places], probabilities[places], mass[places]))
    finite = np.array(resampled)[np.isfinite(resampled)]  # labels of one kind have no AUROC
    low, high = np.percentile(finite, [2.5, 97.5]) if len(finite) else (np.nan, np.nan)
    return measure(right, probabilities, mass), float(low), float(high)


def _members(groups: Array | None, count: int) -> list[Array]:
    if groups is None:
        return [np.array([at]) for at in range(count)]
    return [np.flatnonzero(groups == group) for group in np.unique(groups)]
