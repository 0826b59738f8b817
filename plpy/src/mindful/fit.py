"""Fitting a calibrator to labelled answers, with numpy alone: importing scikit-learn takes seconds, deaf to cancels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindful import metric
from mindful.calibrator import Calibrator, prior
from mindful.metric import Check, unchecked

FEWEST = 30
"""Labels below which nothing is fitted: log-loss of Platt's fit is no better than the base rate's."""
_RARE_PER_FEATURE = 1
"""Labels of the rarer kind that each signal needs to be taken up: weights are held together, so that more signals cost
little. On unseen answers log-loss with 1 was 0.199, 0.180 and 0.168 after 150, 400 and 1,000 labels, one in eighteen of
them right, and 0.214, 0.199 and 0.176 with 8."""
_FEWEST_FOR_KNOTS, _FEWEST_RARE_FOR_KNOTS = 1000, 200
"""Isotonic regression overfits below (Niculescu-Mizil and Caruana 2005)."""
_STRENGTH = 0.05
"""Weight of the labels' log-losses against half the squared weights: signals are many and much alike, so these are held
together."""
_ITERATIONS = 100
_FOLDS = 5

Array = Any


@dataclass(frozen=True)
class Labelled:
    """Labelled answers: their signals, whether each was right, its weight, and what must stay together."""

    signals: Sequence[Mapping[str, float]]
    right: Array
    weights: Array
    groups: Array

    def __len__(self) -> int:
        return len(self.signals)

    @property
    def rare(self) -> int:
        """How many labels there are of the rarer kind."""
        return int(min(self.right.sum(), len(self) - self.right.sum()))

    def at(self, places: Array) -> Labelled:
        """Take those at places, or where a mask is true."""
        chosen = np.arange(len(self))[places]
        return Labelled(
            [self.signals[at] for at in chosen], self.right[places], self.weights[places], self.groups[places]
        )

    def matrix(self, names: Sequence[str]) -> Array:
        """Signals as rows of numbers; missing ones are NaN."""
        return np.array([[row.get(name, np.nan) for name in names] for row in self.signals], dtype=float)


def labelled(
    signals: Sequence[Mapping[str, float]],
    right: Sequence[bool],
    weights: Sequence[float] | None = None,
    groups: Sequence[str] | None = None,
) -> Labelled:
    """Put labelled answers together."""
    count = len(signals)
    codes = np.unique(np.array(groups), return_inverse=True)[1] if groups else np.arange(count)
    return Labelled(
        signals,
        np.array(right, dtype=bool),
        np.ones(count) if weights is None else np.array(weights, dtype=float),
        codes,
    )


def fit(answers: Labelled, names: Sequence[str], check: Check = unchecked) -> Calibrator:
    """Fit signals' weights by logistic regression (Platt 1999), and knots by isotonic regression where labels allow."""
    chosen = _chosen(answers, names)
    calibrator = _logistic(answers, chosen, check)
    if len(answers) < _FEWEST_FOR_KNOTS or answers.rare < _FEWEST_RARE_FOR_KNOTS:
        return calibrator
    xs, ys = isotonic(
        out_of_fold(answers, chosen, score=True, check=check), answers.right, answers.weights, check
    )
    return Calibrator(**vars(calibrator) | {"knots_x": xs, "knots_y": ys})


def out_of_fold(
    answers: Labelled, names: Sequence[str], seed: int = 0, score: bool = False, check: Check = unchecked
) -> Array:
    """What calibrators that did not see an answer say of it: the probability, or the score, of each."""
    found = np.zeros(len(answers))
    for learned, told in folds(answers, seed):
        part = answers.at(learned)
        calibrator = _logistic(part, names, check) if score else fit(part, names, check)
        of = calibrator.score if score else calibrator.probability
        found[told] = [of(row) for row in answers.at(told).signals]
    return found


def folds(answers: Labelled, seed: int) -> list[tuple[Array, Array]]:
    """Split answers in five, with about as many right ones in each, and never a group.

    Groups are dealt in a random order, the larger first, each to the fold that has the least share of its kinds.
    """
    groups, members = np.unique(answers.groups, return_inverse=True)
    count = min(_FOLDS, len(groups), max(answers.rare, 2))
    kinds = np.stack([np.bincount(members, weights=kind) for kind in (answers.right, ~answers.right)], axis=1)
    shares = kinds / np.maximum(kinds.sum(axis=0), 1)
    shuffled = np.random.default_rng(seed).permutation(len(groups))
    filled, fold = np.zeros((count, 2)), np.zeros(len(groups), dtype=int)
    for group in shuffled[np.argsort(-kinds[shuffled].sum(axis=1), kind="stable")]:
        fold[group] = np.argmin(filled @ shares[group] + 1e-9 * filled.sum(axis=1))
        filled[fold[group]] += shares[group]
    told = fold[members]
    return [(np.flatnonzero(told != at), np.flatnonzero(told == at)) for at in range(count)]


def probabilities(calibrator: Calibrator, answers: Labelled) -> Array:
    """What a calibrator says of each answer."""
    return np.array([calibrator.probability(row) for row in answers.signals])


def validated(
    answers: Labelled, names: Sequence[str], repeats: int = 3, check: Check = unchecked
) -> dict[str, Any]:
    """Tell how well calibrators fitted in this way do on answers that they did not see."""
    said = np.mean([out_of_fold(answers, names, seed, check=check) for seed in range(repeats)], axis=0)
    groups = answers.groups if len(set(answers.groups)) < len(answers) else None
    found = {
        name: [
            round(value, 4)
            for value in metric.interval(measure, answers.right, said, groups, answers.weights, check)
        ]
        for name, measure in metric.MEASURES.items()
    }
    return {"labels": len(answers), "right": int(answers.right.sum())} | found


def better(said: Array, held: Calibrator, answers: Labelled, unseen: Sequence[bool]) -> bool:
    """Tell whether new probabilities have a lower log-loss than a calibrator's on answers it did not see.

    In nine of ten resamples of the answers, so that chance alone rarely changes what is in force.
    """
    part = answers.at(np.array(unseen))
    gain = metric.log_losses(part.right, probabilities(held, part)) - metric.log_losses(
        part.right, said[np.array(unseen)]
    )
    random = np.random.default_rng(0)
    picked = random.integers(0, len(gain), (1000, len(gain)))
    sums = (gain * part.weights)[picked].sum(axis=1)
    return bool(np.mean(sums > 0) >= 0.9)


def _chosen(answers: Labelled, names: Sequence[str]) -> list[str]:
    """Take signals, the most telling first, as many as labels allow, that are known of most answers and vary."""
    values = answers.matrix(names)
    known = np.isfinite(values).mean(axis=0) > 0.5
    usable = [
        name
        for at, name in enumerate(names)
        if known[at] and np.nanmax(values[:, at]) - np.nanmin(values[:, at]) > 1e-9
    ]
    return usable[: max(answers.rare // _RARE_PER_FEATURE, 1)]


def _logistic(answers: Labelled, names: Sequence[str], check: Check) -> Calibrator:
    # A part in cross-validation may be of one kind only, or its signals be all alike.
    if answers.rare == 0 or not names:
        share = prior(int(answers.right.sum()), len(answers))
        return Calibrator([], [], [], [], math.log(share / (1 - share)))
    values = answers.matrix(names)
    means = np.nanmean(values, axis=0)
    scales = np.nanstd(values, axis=0)
    scales[scales < 1e-9] = 1.0
    standard = np.nan_to_num((values - means) / scales)
    weights, intercept = logistic(standard, answers.right, answers.weights, check)
    return Calibrator(list(names), means.tolist(), scales.tolist(), weights.tolist(), intercept)


def logistic(values: Array, right: Array, mass: Array, check: Check = unchecked) -> tuple[Array, float]:
    """Minimize the weighted log-loss times _STRENGTH plus half the squared weights, by Newton's method.

    Also called iteratively reweighted least squares (Green 1984). The intercept is free.
    """
    design = np.column_stack([values, np.ones(len(values))])
    penalty = np.append(np.ones(values.shape[1]), 0.0)
    signs = np.where(right, 1.0, -1.0)

    def loss(at: Array) -> float:
        return float(_STRENGTH * (mass @ np.logaddexp(0, -signs * (design @ at))) + (penalty * at) @ at / 2)

    found = np.zeros(design.shape[1])
    for _ in range(_ITERATIONS):
        check()
        said = 1 / (1 + np.exp(-np.clip(design @ found, -500, 500)))
        gradient = _STRENGTH * (design.T @ (mass * (said - right))) + penalty * found
        if np.abs(gradient).max() < 1e-9:
            break
        curvature = _STRENGTH * (design.T * (mass * said * (1 - said))) @ design + np.diag(penalty)
        step, before = np.linalg.solve(curvature + 1e-12 * np.eye(len(found)), gradient), loss(found)
        length = 1.0
        while loss(found - length * step) > before and length > 1e-6:
            length /= 2
        found = found - length * step
    return found[:-1], float(found[-1])


def isotonic(
    scores: Array, right: Array, mass: Array, check: Check = unchecked
) -> tuple[list[float], list[float]]:
    """Find the ascending steps that are nearest to what was right: neighbors that descend are pooled (Barlow 1972).

    Returns the corners alone, within [0.001, 0.999].
    """
    xs, places = np.unique(scores, return_inverse=True)
    masses = np.bincount(places, weights=mass)
    means = np.bincount(places, weights=mass * right) / masses
    pools: list[tuple[float, float, int]] = []
    for at, (mean, weight) in enumerate(zip(means.tolist(), masses.tolist(), strict=True)):
        if at % 1024 == 0:
            check()
        pool = (mean, weight, 1)
        while pools and pools[-1][0] >= pool[0]:
            mean_before, weight_before, count = pools.pop()
            whole = weight_before + pool[1]
            pool = ((mean_before * weight_before + pool[0] * pool[1]) / whole, whole, count + pool[2])
        pools.append(pool)
    ys = np.clip(np.repeat([pool[0] for pool in pools], [pool[2] for pool in pools]), 1e-3, 1 - 1e-3)
    corner = np.ones(len(ys), dtype=bool)
    corner[1:-1] = (ys[1:-1] != ys[:-2]) | (ys[1:-1] != ys[2:])
    return xs[corner].tolist(), ys[corner].tolist()
