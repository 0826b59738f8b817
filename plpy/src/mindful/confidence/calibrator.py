"""Applying a fitted calibrator: from an answer's signals to the probability that it is right."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Calibrator(NamedTuple):
    """The fitted columns of the table `calibrator`."""

    features: Sequence[str]
    means: Sequence[float]
    scales: Sequence[float]
    weights: Sequence[float]
    intercept: float
    knots_x: Sequence[float] = ()
    knots_y: Sequence[float] = ()

    def score(self, signals: Mapping[str, float]) -> float:
        """Return the log-odds of being right, before any knots. A missing signal counts as its mean."""
        return self.intercept + math.fsum(self.contributions(signals).values())

    def contributions(self, signals: Mapping[str, float]) -> dict[str, float]:
        """Return what each signal adds to the score."""
        return {
            name: weight * ((signals.get(name, mean) - mean) / scale)
            for name, mean, scale, weight in zip(
                self.features, self.means, self.scales, self.weights, strict=True
            )
        }

    def probability(self, signals: Mapping[str, float]) -> float:
        """Return the probability that the answer is right."""
        score = self.score(signals)
        if self.knots_x:
            return interpolated(score, self.knots_x, self.knots_y)
        return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))


def interpolated(value: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Interpolate between knots whose xs ascend. Beyond the ends the value is that of the nearest knot."""
    at = bisect.bisect_right(xs, value)
    if at == 0:
        return ys[0]
    if at == len(xs):
        return ys[-1]
    share = (value - xs[at - 1]) / (xs[at] - xs[at - 1])
    return ys[at - 1] + share * (ys[at] - ys[at - 1])


def prior(right: int, labels: int) -> float:
    """Return the probability of being right without a calibrator, by Laplace's rule of succession."""
    return (right + 1) / (labels + 2)
