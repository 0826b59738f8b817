"""Fitting a calibrator to labeled answers with numpy alone.

Importing scikit-learn takes seconds, during which a cancel has to wait.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindful.confidence import metric
from mindful.confidence.calibrator import Calibrator, prior
from mindful.confidence.metric import Check, unchecked
from mindful.core.jsontext import loads

FEWEST = 30
"""Minimum of labels for a fit. With fewer, the log-loss of Platt's fit is no better than the base rate's."""
_RARE_PER_FEATURE = 1
"""Labels of the rarer kind per signal. The weights are regularized, so more signals cost little.

On unseen answers, one in eighteen right, log-loss with 1 was 0.199, 0.180 and 0.168 after 150, 400 and 1,000 labels.
With 8 it was 0.214, 0.199 and 0.176.
"""
_FEWEST_FOR_KNOTS, _FEWEST_RARE_FOR_KNOTS = 1000, 200
"""With fewer labels isotonic regression overfits (Niculescu-Mizil and Caruana 2005)."""
_STRENGTH = 0.05
"""Weight of the labels' log-losses against half the squared weights. Many correlated signals need a strong penalty."""
_ITERATIONS = 100
_FOLDS = 5

Array = Any


@dataclass(frozen=True)
class Labeled:
    """Labeled answers: their signals, labels, weights, and the groups that no split divides."""

    signals: Sequence[Mapping[str, float]]
    right: Array
    weights: Array
    groups: Array

    def __len__(self) -> int:
        return len(self.signals)

    @property
    def rare(self) -> int:
        """The number of labels of the rarer kind."""
        return int(min(self.right.sum(), len(self) - self.right.sum()))

    def at(self, places: Array) -> Labeled:
        """Return the answers at places, or those where a mask is true."""
        chosen = np.arange(len(self))[places]
        return Labeled(
            [self.signals[at] for at in chosen], self.right[places], self.weights[places], self.groups[places]
        )

    def matrix(self, names: Sequence[str]) -> Array:
        """Return the signals as rows of numbers. Missing signals are NaN."""
        return np.array([[row.get(name, np.nan) for name in names] for row in self.signals], dtype=float)


def labeled(
    signals: Sequence[Mapping[str, float]],
    right: Sequence[bool],
    weights: Sequence[float] | None = None,
    groups: Sequence[str] | None = None,
) -> Labeled:
    """Build labeled answers. Without groups each answer is a group."""
    count = len(signals)
    codes = np.unique(np.array(groups), return_inverse=True)[1] if groups else np.arange(count)
    return Labeled(
        signals,
        np.array(right, dtype=bool),
        np.ones(count) if weights is None else np.array(weights, dtype=float),
        codes,
    )


def of_rows(rows: Sequence[Mapping[str, Any]]) -> Labeled:
    """Build labeled answers from rows of `_mindful.labeled` or `_mindful.tuning_signals`.

    A label's weight is 1 / propensity, relative to labels of its stratum, chats or gold questions. So a few chat
    labels drawn by chance do not outweigh gold questions.
    """
    weights = np.array([1 / row["propensity"] for row in rows])
    chats = np.array(
        [row["propensity"] < 1 or row["source"].startswith("session ") for row in rows], dtype=bool
    )
    for stratum in (chats, ~chats):
        weights[stratum] /= weights[stratum].mean() if stratum.any() else 1
    return labeled(
        [loads(row["signals"]) for row in rows],
        [row["correct"] for row in rows],
        weights.tolist(),
        [row["source"] for row in rows],
    )


def fit(answers: Labeled, names: Sequence[str], check: Check = unchecked) -> Calibrator:
    """Fit weights by logistic regression (Platt 1999) and, with enough labels, knots by isotonic regression."""
    chosen = _chosen(answers, names)
    calibrator = _logistic(answers, chosen, check)
    if len(answers) < _FEWEST_FOR_KNOTS or answers.rare < _FEWEST_RARE_FOR_KNOTS:
        return calibrator
    xs, ys = isotonic(
        out_of_fold(answers, chosen, score=True, check=check), answers.right, answers.weights, check
    )
    return Calibrator(**calibrator._asdict() | {"knots_x": xs, "knots_y": ys})


def out_of_fold(
    answers: Labeled, names: Sequence[str], seed: int = 0, score: bool = False, check: Check = unchecked
) -> Array:
    """Return each answer's probability, or score, by a calibrator that was fitted without it."""
    values = np.zeros(len(answers))
    for training, testing in folds(answers, seed):
        part = answers.at(training)
        calibrator = _logistic(part, names, check) if score else fit(part, names, check)
        value_of = calibrator.score if score else calibrator.probability
        values[testing] = [value_of(row) for row in answers.at(testing).signals]
    return values


def folds(answers: Labeled, seed: int) -> list[tuple[Array, Array]]:
    """Split answers into five folds with about as many right ones each. Groups stay whole, unless there is only one.

    Groups are dealt in random order, the larger first, each to the fold with the least share of its kinds.
    """
    whole = answers.groups if len(np.unique(answers.groups)) > 1 else np.arange(len(answers))
    groups, members = np.unique(whole, return_inverse=True)
    count = min(_FOLDS, len(groups), max(answers.rare, 2))
    kinds = np.stack([np.bincount(members, weights=kind) for kind in (answers.right, ~answers.right)], axis=1)
    shares = kinds / np.maximum(kinds.sum(axis=0), 1)
    shuffled = np.random.default_rng(seed).permutation(len(groups))
    filled, fold = np.zeros((count, 2)), np.zeros(len(groups), dtype=int)
    for group in shuffled[np.argsort(-kinds[shuffled].sum(axis=1), kind="stable")]:
        fold[group] = np.argmin(filled @ shares[group] + 1e-9 * filled.sum(axis=1))
        filled[fold[group]] += shares[group]
    of_answer = fold[members]
    return [(np.flatnonzero(of_answer != at), np.flatnonzero(of_answer == at)) for at in range(count)]


def probabilities(calibrator: Calibrator, answers: Labeled) -> Array:
    """Return each answer's probability by a calibrator."""
    return np.array([calibrator.probability(row) for row in answers.signals])


def validated(answers: Labeled, names: Sequence[str], check: Check = unchecked) -> dict[str, Any]:
    """Return the figures of such calibrators on answers that they were not fitted to."""
    return figures(answers, out_of_fold(answers, names, check=check), check)


def figures(answers: Labeled, predicted: Array, check: Check = unchecked) -> dict[str, Any]:
    """Return the figures of probabilities, each with the bounds of its 95% interval.

    Labels of one kind have no AUROC: it is None, as JSON has no NaN.
    """
    groups = answers.groups if len(set(answers.groups)) < len(answers) else None
    found = {
        name: [
            round(value, 4) if math.isfinite(value) else None
            for value in metric.interval(measure, answers.right, predicted, groups, answers.weights, check)
        ]
        for name, measure in metric.MEASURES.items()
    }
    return {"labels": len(answers), "right": int(answers.right.sum())} | found


def better(probabilities_new: Array, current: Calibrator, answers: Labeled, unseen: Sequence[bool]) -> bool:
    """Return whether new probabilities have a lower log-loss than the current calibrator's on answers unseen by it.

    The gain must hold in nine of ten resamples, so that chance rarely replaces the calibrator in force.
    """
    part = answers.at(np.array(unseen))
    before = metric.log_losses(part.right, probabilities(current, part))
    gain = before - metric.log_losses(part.right, probabilities_new[np.array(unseen)])
    random = np.random.default_rng(0)
    picked = random.integers(0, len(gain), (1000, len(gain)))
    sums = (gain * part.weights)[picked].sum(axis=1)
    return bool(np.mean(sums > 0) >= 0.9)


def _chosen(answers: Labeled, names: Sequence[str]) -> list[str]:
    """Return the signals to fit: those that vary and that most answers have, in order, as many as labels allow."""
    values = answers.matrix(names)
    known = np.isfinite(values).mean(axis=0) > 0.5
    usable = [
        name
        for at, name in enumerate(names)
        if known[at] and np.nanmax(values[:, at]) - np.nanmin(values[:, at]) > 1e-9
    ]
    return usable[: max(answers.rare // _RARE_PER_FEATURE, 1)]


def _logistic(answers: Labeled, names: Sequence[str], check: Check) -> Calibrator:
    # A fold may have labels of one kind only, or signals that do not vary.
    if answers.rare == 0 or not names:
        share = prior(int(answers.right.sum()), len(answers))
        return Calibrator([], [], [], [], math.log(share / (1 - share)))
    values = answers.matrix(names)
    share = answers.weights[:, None] * np.isfinite(values)
    share /= np.maximum(share.sum(axis=0), 1e-12)
    means = (share * np.nan_to_num(values)).sum(axis=0)
    scales = np.sqrt((share * np.nan_to_num(values - means) ** 2).sum(axis=0))
    scales[scales < 1e-9] = 1.0
    standard = np.nan_to_num((values - means) / scales)
    # The effective number of labels (Kish 1965): a few heavy labels do not outweigh the penalty.
    mass = answers.weights * answers.weights.sum() / (answers.weights**2).sum()
    weights, intercept = logistic(standard, answers.right, mass, check)
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

    solution = np.zeros(design.shape[1])
    for _ in range(_ITERATIONS):
        check()
        predicted = 1 / (1 + np.exp(-np.clip(design @ solution, -500, 500)))
        gradient = _STRENGTH * (design.T @ (mass * (predicted - right))) + penalty * solution
        if np.abs(gradient).max() < 1e-9:
            break
        curvature = _STRENGTH * (design.T * (mass * predicted * (1 - predicted))) @ design + np.diag(penalty)
        step, before = np.linalg.solve(curvature + 1e-12 * np.eye(len(solution)), gradient), loss(solution)
        length = 1.0
        while loss(solution - length * step) > before and length > 1e-6:
            length /= 2
        solution = solution - length * step
    return solution[:-1], float(solution[-1])


def isotonic(
    scores: Array, right: Array, mass: Array, check: Check = unchecked
) -> tuple[list[float], list[float]]:
    """Fit ascending steps to labels by pooling adjacent violators (Barlow 1972).

    Returns only the corners, with values within [0.001, 0.999].
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
