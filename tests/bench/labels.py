"""Measure how many labels a certificate needs: with a fit to one half, and with a ranking that was there before.

Usage: labels.py ANSWERS [--draws N] [--write FILE]. ANSWERS is a file of kept answers of confidence.py. The answers
"NQ-open, three of four told" are split by question at random. One half stands for the questions that a shipped ranking
was fitted to. The other half is the population that labels are drawn from.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from mindful.confidence import fit, signal
from mindful.confidence.action import PROBABLE, SHARE_OF_IMPROBABLE
from mindful.confidence.fit import Labeled
from mindful.confidence.ranking import Ranking
from mindful.confidence.threshold import Draws, certify, levels, spent
from support.markers import put

_SET = "NQ-open, three of four told"
_NAMES = signal.features(0, with_memory=True)
_COUNTS = (30, 50, 75, 100, 150, 200, 300)
_BUDGETS = (0.2, 0.3)
_DELTA = 0.1
_BEFORE = 6 * _DELTA / np.pi**2
"""What the first test of 0.2.0 spent."""


def _single(right: Any) -> Draws:
    return Draws(right, np.ones(len(right)), np.arange(len(right)))


def _certified(said: Any, right: Any, guide: Any, known: Any, budget: float, delta: float) -> float | None:
    return certify(said, _single(right), levels(guide, known, budget, delta, len(right)), budget, delta).value


def _broken(value: float | None, said: Any, right: Any, budget: float) -> tuple[bool, bool]:
    if value is None:
        return False, False
    shown = said >= value
    return True, bool(shown.any() and (~right[shown]).mean() > budget)


def _drawn(answers: Labeled, count: int, seed: int) -> list[tuple[bool, bool]]:
    """Return for each budget and rule whether a threshold was certified, and whether it breaks the budget."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(answers))
    before, population = answers.at(order[::2]), answers.at(order[1::2])
    ranking = Ranking(fit.fit(before, _NAMES), len(before), int(before.right.sum()))
    chosen = random.integers(0, len(population), count)
    fitting = (random.random(len(population)) < 0.5)[chosen]
    fitted, tested = population.at(chosen[fitting]), population.at(chosen[~fitting])
    labels = population.at(chosen)
    own, shipped = fit.fit(fitted, _NAMES), ranking.updated(count, int(labels.right.sum()))
    guide = fit.out_of_fold(fitted, own.features)
    every, moved = fit.probabilities(own, population), fit.probabilities(shipped, population)
    mine, said = fit.probabilities(own, tested), moved[chosen]
    found = []
    for budget in _BUDGETS:
        for delta in (_BEFORE, spent(_DELTA, 1)):
            value = _certified(mine, tested.right, guide, fitted.right, budget, delta)
            found.append(_broken(value, every, population.right, budget))
        value = _certified(said, labels.right, said, said, budget, spent(_DELTA, 1))
        found.append(_broken(value, moved, population.right, budget))
        found.append(by_chance(population, ranking, count, budget, random))
    return found


def by_chance(
    population: Labeled, ranking: Ranking, count: int, budget: float, random: np.random.Generator
) -> tuple[bool, bool]:
    """Label answers as label_queue offers them: drawn by the probabilities that the labels so far give."""
    chosen: list[int] = []
    shares: list[float] = []
    # Labels move the intercept only.
    scores = np.array([ranking.calibrator.score(row) for row in population.signals])
    scores -= ranking.calibrator.intercept
    now = 1 / (1 + np.exp(-scores - ranking.calibrator.intercept))
    while len(chosen) < count:
        one = int(random.integers(0, len(population)))
        share = 1.0 if now[one] >= PROBABLE else SHARE_OF_IMPROBABLE
        if random.random() < share:
            chosen.append(one)
            shares.append(share)
            weights = 1 / np.array(shares)
            right = float(weights @ population.right[chosen] / weights.sum()) * len(chosen)
            now = 1 / (1 + np.exp(-scores - ranking.updated(len(chosen), right).intercept))
    draws = Draws(population.right[chosen], weights, np.arange(count))
    delta = spent(_DELTA, 1)
    grid = levels(now[chosen], now[chosen], budget, delta, draws.effective(), weights)
    return _broken(certify(now[chosen], draws, grid, budget, delta).value, now, population.right, budget)


def table(answers: Labeled, draws: int) -> str:
    """Return the share of draws with a certificate, and the share that breaks the budget."""
    head = " | ".join(map(str, _COUNTS))
    lines = [
        f"| budget | rule | {head} | budget broken, at most |",
        "|---|---|" + "---|" * (len(_COUNTS) + 1),
    ]
    shares = np.array(
        [np.mean([_drawn(answers, count, seed) for seed in range(draws)], axis=0) for count in _COUNTS]
    )
    rules = (
        "0.2.0: fit to one half",
        "fit to one half",
        "shipped ranking, all labels",
        "shipped ranking, labels by chance",
    )
    for at, (budget, rule) in enumerate((budget, rule) for budget in _BUDGETS for rule in rules):
        cells = " | ".join(f"{share:.0%}" for share in shares[:, at, 0])
        lines.append(f"| {budget:.0%} | {rule} | {cells} | {shares[:, at, 1].max():.1%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("answers", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--write", type=Path, help="put the table into this file, between its markers")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.answers.read_text().splitlines()[1:]]
    rows = [row for row in rows if row["set"] == _SET and row["signals"]]
    answers = fit.labeled(
        [row["signals"] for row in rows],
        [row["correct"] for row in rows],
        None,
        [row["question"] for row in rows],
    )
    text = f"{len(answers)} answers, {int(answers.right.sum())} right.\n\n" + table(answers, options.draws)
    print(text, end="")
    if options.write:
        put(options.write, "labels", text)


if __name__ == "__main__":
    main()
