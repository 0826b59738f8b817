"""Measure whether confidence means something: on real questions, through the SQL functions, with intervals.

Usage: confidence.py DATA [--second GGUF] [--answers FILE] [--limit N] [--minutes N] [--write FILE]. DATA is a folder
with selfaware_dev.json, nq_open_dev_half.jsonl, rgb_en_fact_dev.jsonl and locomo_dev.json. The server comes from
MINDFUL_DSN, as `make dsn` prints it. Answers are kept in FILE, so that a run that was stopped, or had no more time,
goes on where it was; the database that they are made in is dropped.
"""

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import budget
import numpy as np
from answers import Bench, Kept
from mindful import fit, metric, signal
from mindful.fit import Labelled
from questions import sets
from support.markers import put

_CLOSED, _SHOWN, _TOLD = ("TriviaQA", "NQ-open"), ("RGB", "LoCoMo"), "NQ-open, three of four told"
"""Sets whose answers are given without, and with, memories in the prompt; the last mostly hold the answers."""


def said(answers: Labelled, names: Sequence[str]) -> Any:
    """Probabilities of answers by calibrators that did not see them, the mean of five five-fold cross-validations."""
    return np.mean([fit.out_of_fold(answers, names, seed) for seed in range(5)], axis=0)


def figure(what: str, value: tuple[float, float, float], start: str, goal: str) -> str:
    """Write a row of the table."""
    return f"| {what} | **{value[0]:.3f}** ({value[1]:.3f} to {value[2]:.3f}) | {start} | {goal} |"


def _groups(answers: Labelled) -> Any:
    return answers.groups if len(set(answers.groups)) < len(answers) else None


def auroc_rows(name: str, answers: Labelled, with_memory: bool, goals: Sequence[str]) -> list[str]:
    """Rows about how well right answers are told from wrong ones, by tier."""
    base = np.array([row["logprob_sum"] for row in answers.signals])
    count = f"{name}, {len(answers)} answers, {int(answers.right.sum())} right"
    rows = [
        figure(
            f"AUROC, {count}: log-probability alone",
            metric.interval(metric.auroc, answers.right, base, _groups(answers)),
            "",
            "",
        )
    ]
    for tier, goal in enumerate(goals):
        names = signal.features(tier, with_memory)
        probabilities = said(answers, names)
        value = metric.interval(metric.auroc, answers.right, probabilities, _groups(answers))
        rows.append(figure(f"AUROC, {name}: signals of tier {tier}", value, "", goal))
    error = metric.interval(metric.calibration_error, answers.right, probabilities, _groups(answers))
    floor = metric.noise_floor(answers.right)
    rows.append(figure(f"calibration error, {name}, tier {tier}", error, f"floor {floor:.3f}", "<= 0.05"))
    return rows


def apart_rows(kept: Kept, names: Sequence[str], with_memory: bool, tier: int, goal: str) -> list[str]:
    """Rows of each set alone, by the calibrators of all of them: calibrate() fits one to what a model was asked."""
    probabilities = said(kept.labelled(*names), signal.features(tier, with_memory))
    rows, place = [], [row["set"] for row in kept.rows if row["set"] in names]
    for name in names:
        own = np.array([one == name for one in place])
        answers = kept.labelled(name)
        value = metric.interval(metric.auroc, answers.right, probabilities[own], _groups(answers))
        count = f"{len(answers)} answers, {int(answers.right.sum())} right"
        rows.append(figure(f"AUROC, of these {name}, {count}: tier {tier}", value, "", goal))
    return rows


def unanswerable_rows(kept: Kept, tier: int) -> list[str]:
    """How many questions without an answer fall below the threshold that lets 80% of the right answers through."""
    names, closed, none = signal.features(tier, False), kept.labelled(*_CLOSED), kept.labelled("unanswerable")
    told = said(closed, names)
    unseen = fit.probabilities(fit.fit(closed, names), none)
    together = said(kept.labelled(*_CLOSED, "unanswerable"), names)
    places = np.array([row["set"] for row in kept.rows if row["set"] in (*_CLOSED, "unanswerable")])
    shown = kept.labelled(*_SHOWN)
    recalled = said(shown, signal.features(tier, with_memory=True))
    adversarial = np.array([not row["answerable"] for row in kept.rows if row["set"] in _SHOWN])
    return [
        _flagged("SelfAware, none of its kind labelled", told[closed.right], unseen),
        _flagged(
            "SelfAware, others of its kind labelled",
            together[places != "unanswerable"][closed.right],
            together[places == "unanswerable"],
        ),
        _flagged("LoCoMo's category 5, others labelled", recalled[shown.right], recalled[adversarial]),
    ]


def _flagged(what: str, right: Any, unanswerable: Any) -> str:
    flagged = unanswerable < np.quantile(right, 0.2)
    resamples = np.random.default_rng(0).choice(flagged, (1000, len(flagged))).mean(axis=1)
    low, high = np.quantile(resamples, (0.025, 0.975))
    return figure(
        f"unanswerable questions flagged where 80% of the right answers are not: {len(flagged)} of {what}",
        (float(flagged.mean()), float(low), float(high)),
        "",
        "",
    )


def evidence_row(name: str, answers: Labelled, goal: str) -> str:
    """How well questions whose evidence was found are told from those where it was not."""
    value = metric.interval(
        metric.auroc, answers.right, said(answers, sorted(answers.signals[0])), answers.groups
    )
    start = metric.auroc(answers.right, np.array([row["similarity_top"] for row in answers.signals]))
    found = f"{int(answers.right.sum())} of {len(answers)} questions"
    return figure(f"evidence {name}, {found}", value, f"{start:.2f} by similarity", goal)


def report(kept: Kept, tier: int) -> str:
    """Measure everything and write it as Markdown."""
    lines = ["| figure | value (95% interval) | start | goal |", "|---|---|---|---|"]
    short, memory = (">= 0.75", "", ">= 0.80"), ("", "", ">= 0.78")
    closed = kept.labelled(*_CLOSED)
    lines += auroc_rows("closed book", closed, False, short[: tier + 1])
    lines += apart_rows(kept, _CLOSED, False, tier, "")
    lines += auroc_rows("memories shown", kept.labelled(*_SHOWN), True, memory[: tier + 1])
    lines += apart_rows(kept, _SHOWN, True, tier, ">= 0.78")
    remembered = kept.labelled(_TOLD)
    if len(remembered):
        lines += auroc_rows(_TOLD, remembered, True, memory[: tier + 1])
    lines += unanswerable_rows(kept, tier)
    lines.append(evidence_row("among the five nearest embeddings", kept.labelled("nearest"), ">= 0.85"))
    lines.append(evidence_row("among the five best of `memory_recall`", kept.labelled("recalled"), ">= 0.85"))
    pools = {
        "closed book": (closed, signal.features(tier, False)),
        "memories shown": (kept.labelled(*_SHOWN), signal.features(tier, True)),
    }
    if len(remembered):
        pools[_TOLD] = remembered, signal.features(tier, True)
    if len(second := kept.labelled(kept.second(_TOLD))):
        pools[f"{_TOLD}, second model"] = second, signal.features(0, True, chained=True)
    lines += ["", *budget.rows(pools), "", *budget.alarm_rows()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--second", type=Path, help="GGUF file of the second model, readable by the server")
    parser.add_argument(
        "--answers",
        type=Path,
        default=Path(tempfile.gettempdir()) / "mindful-confidence.jsonl",
        help="where answers are kept from run to run (%(default)s)",
    )
    parser.add_argument("--limit", type=int, default=100_000, help="most questions of a set")
    parser.add_argument("--minutes", type=float, default=90, help="when to stop answering (%(default)s)")
    parser.add_argument("--write", type=Path, help="put the tables into this file, between its markers")
    options = parser.parse_args()
    with Bench(os.environ["MINDFUL_DSN"], options.second, options.answers, options.minutes * 60) as bench:
        asked = sets(options.data, options.limit)
        for work in (bench.look_for_evidence, bench.answer):
            for questions in asked:
                work(questions)
    text = report(bench.kept, bench.tier)
    print(text, end="")
    if options.write:
        put(options.write, "figures", text)


if __name__ == "__main__":
    main()
