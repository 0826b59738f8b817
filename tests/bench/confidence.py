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


def unanswerable_row(answerable: Labelled, unanswerable: Labelled, tier: int) -> str:
    """How many questions without an answer fall below the threshold that lets 80% of the right answers through."""
    names = signal.features(tier, False)
    guide = said(answerable, names)
    value = float(np.quantile(guide[answerable.right], 0.2))
    calibrator = fit.fit(answerable, names)
    flagged = fit.probabilities(calibrator, unanswerable) < value
    low, high = np.quantile(
        np.random.default_rng(0).choice(flagged, (1000, len(flagged))).mean(axis=1), (0.025, 0.975)
    )
    return figure(
        f"unanswerable questions flagged, {len(flagged)}, at a threshold that keeps 80% of the right answers",
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
    for what, names, with_memory, goals in (
        ("closed book", ("TriviaQA", "NQ-open"), False, short),
        ("closed book, TriviaQA alone", ("TriviaQA",), False, short),
        ("RGB, passages shown", ("RGB",), True, memory),
        ("LoCoMo, memories recalled", ("LoCoMo",), True, memory),
        ("RGB and LoCoMo", ("RGB", "LoCoMo"), True, memory),
    ):
        lines += auroc_rows(what, kept.labelled(*names), with_memory, goals[: tier + 1])
    closed = kept.labelled("TriviaQA", "NQ-open")
    lines.append(unanswerable_row(closed, kept.labelled("unanswerable"), tier))
    lines.append(evidence_row("among the five nearest embeddings", kept.labelled("nearest"), ">= 0.85"))
    lines.append(evidence_row("among the five best of `memory_recall`", kept.labelled("recalled"), ">= 0.85"))
    pools = {
        "closed book": (closed, signal.features(tier, False)),
        "RGB and LoCoMo": (kept.labelled("RGB", "LoCoMo"), signal.features(tier, True)),
    }
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
        for questions in sets(options.data, options.limit):
            bench.look_for_evidence(questions)
            bench.answer(questions)
    text = report(bench.kept, bench.tier)
    print(text, end="")
    if options.write:
        before, _, rest = options.write.read_text().partition("<!-- figures -->\n")
        after = rest.partition("<!-- /figures -->")[2]
        options.write.write_text(f"{before}<!-- figures -->\n{text}<!-- /figures -->{after}")


if __name__ == "__main__":
    main()
