"""How well probabilities rank answers: against each single signal, and against the best possible order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mindful.confidence import fit, metric
from mindful.confidence.calibrator import Calibrator
from mindful.confidence.fit import Labeled

Array = Any
_RESAMPLES = 1000
_POLITE = "Could you please tell me "
"""Begins questions of NQ-open that are asked in other words."""


def is_aside(question: str, source: str = "") -> bool:
    """Return whether a question is in the third that chose no design, by a hash of its text or source."""
    name = source or question.removeprefix(_POLITE)
    return int(hashlib.md5(name.encode()).hexdigest()[:8], 16) % 3 == 0


@dataclass(frozen=True)
class Ranked:
    """Labeled answers with the probabilities of calibrators that were fitted without them."""

    answers: Labeled
    probabilities: Array

    @property
    def right(self) -> Array:
        """The labels."""
        return self.answers.right


def unseen(answers: Labeled, names: Sequence[str]) -> Ranked:
    """Return probabilities by one five-fold cross-validation, as `calibrate` fits. Questions stay whole."""
    return Ranked(answers, fit.out_of_fold(answers, names))


def transferred(fitted: Labeled, answers: Labeled, names: Sequence[str]) -> Ranked:
    """Return probabilities by a calibrator that was fitted to other questions."""
    return Ranked(answers, fit.probabilities(fit.fit(fitted, names), answers))


@dataclass(frozen=True)
class Pool:
    """Labeled answers of several sets, of which one has a base rate of its own."""

    answers: Labeled
    sets: Array
    apart: str

    @property
    def base(self) -> Labeled:
        """The answers that give the base rate."""
        return self.answers.at(self.sets != self.apart)

    def fitted(self, names: Sequence[str]) -> Calibrator:
        """Fit a ranking.

        An indicator takes up the base rate of the set apart, so that no signal stands for the set. It is left out of
        the ranking, whose intercept gives the base rate of the others.
        """
        mark = [float(name == self.apart) for name in self.sets]
        marked = replace(
            self.answers,
            signals=[{**row, "apart": at} for row, at in zip(self.answers.signals, mark, strict=True)],
        )
        found = fit.fit(marked, ["apart", *names])._asdict()
        kept = [at for at, name in enumerate(found["features"]) if name != "apart"]
        arrays = {
            name: [found[name][at] for at in kept] for name in ("features", "means", "scales", "weights")
        }
        ranking = Calibrator(**arrays, intercept=found["intercept"])
        for _ in range(50):
            said = fit.probabilities(ranking, self.base)
            step = (self.base.right.mean() - said.mean()) / (said * (1 - said)).mean()
            ranking = ranking._replace(intercept=float(ranking.intercept + step))
        return ranking

    def unseen(self, names: Sequence[str], sets: Sequence[str]) -> Ranked:
        """Return probabilities of some sets' answers by one five-fold cross-validation of the ranking."""
        found = np.zeros(len(self.answers))
        for training, testing in fit.folds(self.answers, 0):
            part = Pool(self.answers.at(training), self.sets[training], self.apart)
            found[testing] = fit.probabilities(part.fitted(names), self.answers.at(testing))
        chosen = np.isin(self.sets, sets)
        return Ranked(self.answers.at(chosen), found[chosen])


def risk_area(right: Array, scores: Array) -> float:
    """Return the area under the risk-coverage curve: the mean over k of the share of errors among the k best."""
    order = np.argsort(-scores, kind="stable")
    return float((np.cumsum(~right[order]) / np.arange(1, len(order) + 1)).mean())


def brier_skill(right: Array, probabilities: Array) -> float:
    """Return the share of the base rate's Brier score that probabilities save."""
    share = right.mean()
    return float(1 - metric.brier(right, probabilities) / (share * (1 - share)))


def noise_floor(right: Array) -> float:
    """Return the calibration error that perfect probabilities show on this number of answers."""
    share = right.mean()
    return float(0.8 * np.sqrt(share * (1 - share) * metric.BINS / len(right)))


def singles(answers: Labeled, names: Sequence[str]) -> Mapping[str, Array]:
    """Return each signal as a ranking, turned so that higher is better. Missing values count as the median."""
    found = {}
    for name in names:
        values = answers.matrix([name])[:, 0]
        if np.isfinite(values).mean() > 0.5 and np.nanmax(values) > np.nanmin(values):
            values = np.nan_to_num(values, nan=float(np.nanmedian(values)))
            found[name] = values if metric.auroc(answers.right, values) >= 0.5 else -values
    return found


def best_single(answers: Labeled, names: Sequence[str]) -> tuple[str, Array]:
    """Return the signal of the highest AUROC on these very answers: the hardest rival of a combination."""
    found = singles(answers, names)
    name = max(found, key=lambda one: metric.auroc(answers.right, found[one]))
    return name, found[name]


def difference(measure: Callable[..., float], ranked: Ranked, other: Array) -> tuple[float, float, float]:
    """Return how much a measure of the probabilities exceeds that of another ranking, with its 95% interval.

    By paired bootstrap: both are measured on the same resampled questions.
    """
    right, random = ranked.right, np.random.default_rng(0)
    members = [np.flatnonzero(ranked.answers.groups == group) for group in np.unique(ranked.answers.groups)]
    gains = []
    for _ in range(_RESAMPLES):
        places = np.concatenate([members[at] for at in random.integers(0, len(members), len(members))])
        if 0 < right[places].sum() < len(places):
            gains.append(
                measure(right[places], ranked.probabilities[places]) - measure(right[places], other[places])
            )
    low, high = np.percentile(gains, [2.5, 97.5])
    return measure(right, ranked.probabilities) - measure(right, other), float(low), float(high)


def rows(setting: str, tier: int, ranked: Ranked, names: Sequence[str]) -> tuple[str, str]:
    """Return a row about the ranking, and one about the probabilities."""
    right, count = ranked.right, f"{len(ranked.answers)}, {int(ranked.right.sum())}"
    value = metric.interval(metric.auroc, right, ranked.probabilities, ranked.answers.groups)
    name, single = best_single(ranked.answers, names)
    gain = difference(metric.auroc, ranked, single)
    # Of all single signals the one of the least area is the rival here; it need not be the one of the best AUROC.
    mine, best = (
        risk_area(right, ranked.probabilities),
        min(risk_area(right, one) for one in singles(ranked.answers, names).values()),
    )
    oracle = risk_area(right, right.astype(float))
    error = metric.calibration_error(right, ranked.probabilities)
    return (
        f"| {setting} | {count} | {tier} | **{value[0]:.3f}** ({value[1]:.3f} to {value[2]:.3f}) "
        f"| `{name}` {metric.auroc(right, single):.3f} | {gain[0]:+.3f} ({gain[1]:+.3f} to {gain[2]:+.3f}) "
        f"| {mine:.3f} | {best:.3f} | {oracle:.3f} | {(best - mine) / (best - oracle):+.0%} |",
        f"| {setting} | {tier} | {right.mean():.0%} | {brier_skill(right, ranked.probabilities):+.3f} "
        f"| {error:.3f} | {noise_floor(right):.3f} |",
    )
