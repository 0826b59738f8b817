"""Fitting a calibrator to labelled answers. scikit-learn is imported here alone, by calibrate(), never by an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mindful import metric
from mindful.calibrator import Calibrator, prior
from mindful.errors import MissingPackageError

FEWEST = 30
"""Labels below which nothing is fitted: log-loss of Platt's fit is no better than the base rate's."""
_RARE_PER_FEATURE = 1
"""Labels of the rarer kind that each signal needs to be taken up: weights are held together, so that more signals cost
little. On unseen answers log-loss with 1 was 0.199, 0.180 and 0.168 after 150, 400 and 1,000 labels, one in eighteen of
them right, and 0.214, 0.199 and 0.176 with 8."""
_FEWEST_FOR_KNOTS, _FEWEST_RARE_FOR_KNOTS = 1000, 200
"""Isotonic regression overfits below (Niculescu-Mizil and Caruana 2005)."""
_STRENGTH = 0.05
"""scikit-learn's C: signals are many and much alike, so weights are held together."""
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


def fit(answers: Labelled, names: Sequence[str]) -> Calibrator:
    """Fit signals' weights by logistic regression (Platt 1999), and knots by isotonic regression where labels allow."""
    chosen = _chosen(answers, names)
    calibrator = _logistic(answers, chosen)
    if len(answers) < _FEWEST_FOR_KNOTS or answers.rare < _FEWEST_RARE_FOR_KNOTS:
        return calibrator
    xs, ys = _knots(out_of_fold(answers, chosen, score=True), answers)
    return Calibrator(**vars(calibrator) | {"knots_x": xs, "knots_y": ys})


def out_of_fold(answers: Labelled, names: Sequence[str], seed: int = 0, score: bool = False) -> Array:
    """What calibrators that did not see an answer say of it: the probability, or the score, of each."""
    found = np.zeros(len(answers))
    for learned, told in folds(answers, seed):
        part = answers.at(learned)
        calibrator = _logistic(part, names) if score else fit(part, names)
        of = calibrator.score if score else calibrator.probability
        found[told] = [of(row) for row in answers.at(told).signals]
    return found


def folds(answers: Labelled, seed: int) -> list[tuple[Array, Array]]:
    """Split answers in five, with as many right ones in each, and never a group."""
    selection = _sklearn("model_selection")
    grouped = len(set(answers.groups)) < len(answers)
    splitter = selection.StratifiedGroupKFold if grouped else selection.StratifiedKFold
    count = min(_FOLDS, len(set(answers.groups)), max(answers.rare, 2))
    groups = answers.groups if grouped else None
    return list(splitter(count, shuffle=True, random_state=seed).split(answers.right, answers.right, groups))


def probabilities(calibrator: Calibrator, answers: Labelled) -> Array:
    """What a calibrator says of each answer."""
    return np.array([calibrator.probability(row) for row in answers.signals])


def validated(answers: Labelled, names: Sequence[str], repeats: int = 3) -> dict[str, Any]:
    """Tell how well calibrators fitted in this way do on answers that they did not see."""
    said = np.mean([out_of_fold(answers, names, seed) for seed in range(repeats)], axis=0)
    groups = answers.groups if len(set(answers.groups)) < len(answers) else None
    found = {
        name: [
            round(value, 4)
            for value in metric.interval(measure, answers.right, said, groups, answers.weights)
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


def _logistic(answers: Labelled, names: Sequence[str]) -> Calibrator:
    # A part in cross-validation may be of one kind only, or its signals be all alike.
    if answers.rare == 0 or not names:
        share = prior(int(answers.right.sum()), len(answers))
        return Calibrator([], [], [], [], math.log(share / (1 - share)))
    values = answers.matrix(names)
    means = np.nanmean(values, axis=0)
    scales = np.nanstd(values, axis=0)
    scales[scales < 1e-9] = 1.0
    standard = np.nan_to_num((values - means) / scales)
    model = _sklearn("linear_model").LogisticRegression(C=_STRENGTH, max_iter=1000)
    model.fit(standard, answers.right, sample_weight=answers.weights)
    return Calibrator(
        list(names), means.tolist(), scales.tolist(), model.coef_[0].tolist(), float(model.intercept_[0])
    )


def _knots(scores: Array, answers: Labelled) -> tuple[list[float], list[float]]:
    regression = _sklearn("isotonic").IsotonicRegression(y_min=1e-3, y_max=1 - 1e-3, out_of_bounds="clip")
    regression.fit(scores, answers.right, sample_weight=answers.weights)
    return regression.X_thresholds_.tolist(), regression.y_thresholds_.tolist()


def _sklearn(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"sklearn.{module}")
    except ImportError:
        raise MissingPackageError(
            "the Python package scikit-learn is not installed",
            "Install it where the server's Python packages are: pip install 'pg-mindful[server]'.",
        ) from None
