"""How good probabilities are, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
_BINS = 10
_RESAMPLES = 1000


def auroc(right: Array, probabilities: Array) -> float:
    """Probability that a right answer ranks above a wrong one; ties count half (Mann and Whitney 1947)."""
    values, places = np.unique(probabilities, return_inverse=True)
    good = np.bincount(places, weights=right, minlength=len(values))
    bad = np.bincount(places, weights=~right, minlength=len(values))
    if not good.sum() or not bad.sum():
        return float("nan")
    below = np.cumsum(bad) - bad
    return float((good * (below + bad / 2)).sum() / (good.sum() * bad.sum()))


def calibration_error(right: Array, probabilities: Array) -> float:
    """Expected calibration error over ten bins of equal mass: mean |share of right ones - mean probability|."""
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, _BINS) if len(part)]
    gaps = [len(part) * abs(right[part].mean() - probabilities[part].mean()) for part in parts]
    return float(sum(gaps) / len(order))


def brier(right: Array, probabilities: Array) -> float:
    """Mean squared error of the probability (Brier 1950)."""
    return float(np.mean((probabilities - right) ** 2))


def log_loss(right: Array, probabilities: Array) -> float:
    """Mean -log probability of what was the case."""
    return float(log_losses(right, probabilities).mean())


def log_losses(right: Array, probabilities: Array) -> Array:
    """Minus the log-probability of what was the case, of each answer."""
    bounded = np.clip(probabilities, 1e-6, 1 - 1e-6)
    return -np.where(right, np.log(bounded), np.log1p(-bounded))


def noise_floor(right: Array) -> float:
    """Calibration error that perfect probabilities would show on so many answers."""
    share = right.mean()
    return float(0.8 * np.sqrt(share * (1 - share) * _BINS / len(right)))


MEASURES: dict[str, Callable[[Array, Array], float]] = {
    "auroc": auroc,
    "ece": calibration_error,
    "brier": brier,
    "log_loss": log_loss,
}


def interval(
    measure: Callable[[Array, Array], float], right: Array, probabilities: Array, groups: Array | None = None
) -> tuple[float, float, float]:
    """Return a figure with the bounds of its 95% interval, by resampling answers, or groups of them."""
    random = np.random.default_rng(0)
    members = _members(groups, len(right))
    found = []
    for _ in range(_RESAMPLES):
        picked = random.integers(0, len(members), len(members))
        places = np.concatenate([members[at] for at in picked]) if groups is not None else picked
        found.append(measure(right[places], probabilities[places]))
    low, high = np.nanpercentile(found, [2.5, 97.5])
    return measure(right, probabilities), float(low), float(high)


def _members(groups: Array | None, count: int) -> list[Array]:
    if groups is None:
        return [np.array([at]) for at in range(count)]
    return [np.flatnonzero(groups == group) for group in np.unique(groups)]
