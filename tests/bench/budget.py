"""Whether budgets are kept and alarms come in time, over many random draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from mindful.confidence import fit, threshold
from mindful.confidence.calibrator import Calibrator
from mindful.confidence.fit import Labeled

_BUDGETS = (0.1, 0.2, 0.3, 0.5)
_DELTA = 0.1
_SPLITS = 200
_DRAWS = 50
_LABELS = (50, 100, 200, 300)
_LABELED = (1, 0.75, 0.5, 0.25, 0.1)
"""Shares of the errors that are labeled."""


def rows(pools: Mapping[str, tuple[Labeled, Sequence[str]]], simulated: bool = True) -> list[str]:
    """Split each pool 200 times at random by question. Fit to one half, and test on draws from the other.

    The other half is the population. Guide, test and the part of delta that is spent are those of `calibrate`.
    """
    lines = [
        "| budget | answers | budget broken | naive rule | coverage | best possible | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    shares = (0.6, 0.3) if simulated else ()
    others = {f"simulated, {share:.0%} right, AUROC 0.80": _simulated(share) for share in shares}
    for name, (answers, names) in (*pools.items(), *others.items()):
        found = np.array([_split(answers, names, seed) for seed in range(_SPLITS)])
        for at, budget in enumerate(_BUDGETS):
            broken, naive, coverage, oracle = found[:, at].mean(axis=0)
            lines.append(
                f"| {budget:.0%} | {name}, {len(answers)} | **{broken:.1%}** | {naive:.1%} | {coverage:.1%} "
                f"| {oracle:.1%} | <= {_DELTA:.0%} |"
            )
    return lines


def _simulated(share: float) -> tuple[Labeled, list[str]]:
    random = np.random.default_rng(0)
    right = random.random(2000) < share
    scores = right * 1.19 + random.normal(size=2000)
    return fit.labeled([{"logprob_sum": float(score)} for score in scores], right.tolist()), ["logprob_sum"]


def _halves(answers: Labeled, random: np.random.Generator) -> tuple[Labeled, Labeled]:
    """Split answers into two halves that share no question, as the hash of `calibrate` does."""
    codes = np.unique(answers.groups, return_inverse=True)[1]
    mask = (random.random(codes.max() + 1) < 0.5)[codes]
    return answers.at(mask), answers.at(~mask)


def _threshold(
    fitted: Labeled, tested: Labeled, calibrator: Calibrator, guide: Any, budget: float
) -> float | None:
    """Certify a threshold as the first run of `calibrate` does."""
    delta = threshold.spent(_DELTA, 1)
    draws = threshold.Draws(tested.right, np.ones(len(tested)), np.arange(len(tested)))
    grid = threshold.levels(guide, fitted.right, budget, delta, len(tested))
    return threshold.certify(fit.probabilities(calibrator, tested), draws, grid, budget, delta).value


def _split(answers: Labeled, names: Sequence[str], seed: int) -> list[tuple[float, float, float, float]]:
    """For each budget: whether it was broken, by our rule and the naive one; our coverage, and the best possible."""
    random = np.random.default_rng(seed)
    fitted, population = _halves(answers, random)
    calibrator = fit.fit(fitted, names)
    guide, said = fit.out_of_fold(fitted, calibrator.features), fit.probabilities(calibrator, population)
    drawn = random.integers(0, len(population), len(population))
    found = []
    for budget in _BUDGETS:
        ours = _threshold(fitted, population.at(drawn), calibrator, guide, budget)
        naive = _lowest(said[drawn], population.right[drawn], budget)
        best = _lowest(said, population.right, budget)
        found.append(
            (
                float(_risk(said, population.right, ours) > budget),
                float(_risk(said, population.right, naive) > budget),
                _coverage(said, ours),
                _coverage(said, best),
            )
        )
    return found


def label_rows(pools: Mapping[str, tuple[Labeled, Sequence[str]]]) -> list[str]:
    """Draw so many labels, calibrate with them, and count how often a threshold is certified."""
    lines = [
        "| draws with a certificate after labels | budget | " + " | ".join(map(str, _LABELS)) + " |",
        "|---|---|" + "---|" * len(_LABELS),
    ]
    for name, (answers, names) in pools.items():
        shares = np.array([_certificates(answers, names, count) for count in _LABELS])
        for at, budget in enumerate(_BUDGETS):
            cells = " | ".join("" if np.isnan(share) else f"{share:.0%}" for share in shares[:, at])
            lines.append(f"| {name} | {budget:.0%} | {cells} |")
    return lines


def _certificates(answers: Labeled, names: Sequence[str], count: int) -> list[float]:
    """Return, for each budget, the share of draws of so many labels that certify a threshold."""
    if len(answers) < count:
        return [float("nan")] * len(_BUDGETS)
    found = []
    for seed in range(_DRAWS):
        random = np.random.default_rng(seed)
        fitted, tested = _halves(answers.at(random.permutation(len(answers))[:count]), random)
        if not fitted.rare or not len(tested):
            found.append([False] * len(_BUDGETS))
            continue
        calibrator = fit.fit(fitted, names)
        guide = fit.out_of_fold(fitted, calibrator.features)
        found.append(
            [_threshold(fitted, tested, calibrator, guide, budget) is not None for budget in _BUDGETS]
        )
    shares: list[float] = np.mean(found, axis=0).tolist()
    return shares


def _lowest(said: Any, right: Any, budget: float) -> float | None:
    """Find the lowest threshold above which the share of wrong answers is within the budget."""
    order = np.argsort(-said, kind="stable")
    share = np.cumsum(~right[order]) / np.arange(1, len(order) + 1)
    last = np.append(said[order][1:] < said[order][:-1], True)
    kept = np.flatnonzero(last & (share <= budget))
    return float(said[order][kept[-1]]) if len(kept) else None


def _risk(said: Any, right: Any, value: float | None) -> float:
    return 0.0 if value is None or not (said >= value).any() else float((~right[said >= value]).mean())


def _coverage(said: Any, value: float | None) -> float:
    return 0.0 if value is None else float((said >= value).mean())


def _alarms(errors: Any, budget: float, delta: float) -> tuple[Any, Any]:
    """Return which streams the evidence of _threshold_evidence alarms, and after how many answers."""
    evidence = np.cumsum(np.log1p(0.15 * (errors - budget) / budget), axis=1)
    alarmed = evidence >= -np.log(delta)
    return alarmed.any(axis=1), np.where(alarmed.any(axis=1), alarmed.argmax(axis=1) + 1, np.inf)


def alarm_rows(budget: float = 0.1, delta: float = 0.05) -> list[str]:
    """Watch 2,000 streams of 2,000 labeled answers."""
    lines = [
        "| share of errors, budget 10%, delta 5% | alarms | median labels to the alarm | goal |",
        "|---|---|---|---|",
    ]
    for share, goal in ((budget, "alarms <= 5%"), (2 * budget, "median <= 60"), (3 * budget, "")):
        alarmed, first = _alarms(np.random.default_rng(0).random((2000, 2000)) < share, budget, delta)
        median = float(np.median(first))
        shown = f"{median:.0f}" if np.isfinite(median) else "none"
        lines.append(f"| {share:.0%} | **{alarmed.mean():.1%}** | {shown} | {goal} |")
    return lines


def unlabeled_rows(budget: float = 0.1, delta: float = 0.05) -> list[str]:
    """Watch the same streams with a share of the errors labeled. An answer without a label counts as right."""
    lines = [
        "| share of errors, budget 10%, delta 5% | "
        + " | ".join(f"{labeled:.0%} labeled" for labeled in _LABELED)
        + " |",
        "|---|" + "---|" * len(_LABELED),
    ]
    for share in (budget, 2 * budget, 3 * budget, 5 * budget):
        random = np.random.default_rng(0)
        errors, drawn = random.random((2000, 2000)) < share, random.random((2000, 2000))
        found = [_alarms(errors & (drawn < labeled), budget, delta)[0].mean() for labeled in _LABELED]
        lines.append(f"| {share:.0%} | " + " | ".join(f"{alarms:.1%}" for alarms in found) + " |")
    return lines


if __name__ == "__main__":
    print("\n".join([*alarm_rows(), "", *unlabeled_rows()]))
