"""Measure whether confidence means something: on real questions, through the SQL functions, with intervals.

Usage: confidence.py DATA [--form chat|template] [--second GGUF] [--answers FILE] [--limit N] [--minutes N] [--last]
[--rankings FILE] [--write FILE]. DATA is a folder with selfaware_dev.json, nq_open_dev_half.jsonl,
rgb_en_fact_dev.jsonl and locomo_dev.json. In chat form the model is registered as the set-up registers it. The server
comes from MINDFUL_DSN, as `make dsn` prints it. Answers are kept in FILE, from which a stopped run continues; the
database that they are made in is dropped.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import budget
import numpy as np
from answers import FIRST, FORMS, Bench, Kept
from mindful.confidence import fit, metric, signal
from mindful.confidence.fit import Labeled
from questions import INVENTED, sets
from ranking import Pool, Ranked, is_aside, rows, transferred, unseen
from support.markers import put

_CLOSED, _SHOWN, _TOLD = ("TriviaQA", "NQ-open"), ("RGB", "LoCoMo"), "NQ-open, three of four told"
"""Sets whose answers are given without, and with, memories in the prompt; the last mostly hold the answers."""
_SETTINGS = {
    "closed book": (_CLOSED, False),
    "memories shown": (_SHOWN, True),
    "of these RGB": (("RGB",), True),
    "three of four told": ((_TOLD,), True),
}
_OF_KIND = {False: _CLOSED, True: (*_SHOWN, _TOLD)}
"""The sets of a shipped ranking, without and with memories in the prompt. The latter is fitted to INVENTED too."""
_OF_PACKAGE = {"`model_calibrate`": ((INVENTED,), True)}
_ARRAYS = ("means", "scales", "weights")
_EVIDENCE = {
    "nearest": "among the five nearest embeddings",
    "recalled": "among the five best of `memory_recall`",
}
_FEWEST_RARE = 10
"""Fewer right, or wrong, answers say nothing about a ranking."""
_RANKING = (
    "| setting | answers, right | tier | AUROC | best single signal | gain over it | risk-coverage area "
    "| of the best single | least possible | gap closed |\n|---|---|---|---|---|---|---|---|---|---|"
)
_REPLIES = (
    "| setting | replies, right | the model's words | a memory's words | the model was not asked "
    "| memories shown have a right answer | they have none |\n|---|---|---|---|---|---|---|"
)
_PROBABILITIES = (
    "| setting | tier | right | Brier skill | calibration error | its floor |\n|---|---|---|---|---|---|"
)


def figure(what: str, value: tuple[float, float, float], start: str, goal: str) -> str:
    """Write a row of the table."""
    return f"| {what} | **{value[0]:.3f}** ({value[1]:.3f} to {value[2]:.3f}) | {start} | {goal} |"


def part(kept: Kept, names: Sequence[str], aside: bool) -> Labeled:
    """Return the labeled answers to the questions kept aside, or to the others."""
    return kept.labeled(*names, choose=lambda row: is_aside(row["question"], row["source"]) == aside)


def pool(kept: Kept, with_memory: bool) -> Pool:
    """Return what a shipped ranking is fitted to: all but the questions kept aside."""

    def is_fitted(row: dict[str, Any]) -> bool:
        return row["set"] == INVENTED or not is_aside(row["question"], row["source"])

    names = (*_OF_KIND[with_memory], *([INVENTED] if with_memory else []))
    rows = [row for row in kept.chosen(*names, choose=is_fitted) if row["signals"]]
    return Pool(kept.labeled(*names, choose=is_fitted), np.array([row["set"] for row in rows]), INVENTED)


def ranking_rows(kept: Kept, tier: int, aside: bool) -> list[str]:
    """Compare probabilities with single signals, setting by setting, and tell how far they can be believed."""
    ranked_rows, probability_rows = [], []
    kinds = {with_memory: pool(kept, with_memory) for with_memory in _OF_KIND}
    for setting, (names, with_memory) in (_SETTINGS if aside else _SETTINGS | _OF_PACKAGE).items():
        answers, single = part(kept, names, aside), signal.features(0, with_memory)
        if setting in _OF_PACKAGE:
            answers = kept.labeled(*names)
        if answers.rare < _FEWEST_RARE:
            continue
        for level in range(tier + 1):
            signals, shipped = signal.features(level, with_memory), f"{setting}, fitted as shipped"
            if aside:
                own, ranking = part(kept, names, aside=False), kinds[with_memory].fitted(signals)
                found = {
                    setting: transferred(own, answers, signals),
                    shipped: Ranked(answers, fit.probabilities(ranking, answers)),
                }
            else:
                found = {
                    setting: unseen(answers, signals),
                    shipped: kinds[with_memory].unseen(signals, names),
                }
            for name, ranked in found.items():
                row, other = rows(name, level, ranked, single)
                ranked_rows.append(row)
                probability_rows.append(other)
    return [_RANKING, *ranked_rows, "", _PROBABILITIES, *probability_rows]


def reply_rows(kept: Kept, aside: bool) -> list[str]:
    """Tell how the replies came about, and whether the memories shown contain a right answer."""
    lines = [_REPLIES]
    for setting, (names, with_memory) in _SETTINGS.items():
        found = kept.chosen(*names, choose=lambda row: is_aside(row["question"], row["source"]) == aside)
        found = [row for row in found if "action" in row]
        if not with_memory or not found:
            continue
        told = [row for row in found if row["signals"]]
        parts = (
            [row for row in told if not row["signals"].get("quoted")],
            [row for row in told if row["signals"].get("quoted")],
            [row for row in found if not row["signals"]],
            [row for row in told if row["stated"]],
            [row for row in told if not row["stated"]],
        )
        cells = (f"{len(rows)}, {sum(row['correct'] for row in rows)}" for rows in (found, *parts))
        lines.append(f"| {setting} | {' | '.join(cells)} |")
    return lines


def rankings(kept: Kept, sha256: str, name: str, form: str, tier: int) -> list[dict[str, Any]]:
    """Fit the rankings that the package ships, to the questions that chose the design and to model_calibrate's."""
    found = []
    for with_memory in _OF_KIND:
        fitted_to = pool(kept, with_memory)
        answers = fitted_to.base
        for level in range(tier + 1):
            fitted = fitted_to.fitted(signal.features(level, with_memory))
            found.append(
                {"sha256": sha256, "name": name, "form": form}
                | {"with_memory": with_memory, "signal_tier": level}
                | {"features": fitted.features, "intercept": round(fitted.intercept, 6)}
                | {key: [round(value, 6) for value in getattr(fitted, key)] for key in _ARRAYS}
                | {"labels": len(answers), "right": int(answers.right.sum())}
            )
    return found


def unanswerable_rows(kept: Kept, tier: int) -> list[str]:
    """How many questions without an answer fall below the threshold that lets 80% of the right answers through."""
    closed, none = kept.labeled(*_CLOSED), kept.labeled("unanswerable")
    if not len(none):
        return []
    names = signal.features(tier, with_memory=False)
    alone = fit.probabilities(fit.fit(closed, names), none)
    together = unseen(kept.labeled(*_CLOSED, "unanswerable"), names).probabilities
    places = np.array([row["set"] for row in kept.rows if row["set"] in (*_CLOSED, "unanswerable")])
    return [
        _flagged(
            "SelfAware, none of its kind labeled", unseen(closed, names).probabilities[closed.right], alone
        ),
        _flagged(
            "SelfAware, others of its kind labeled",
            together[places != "unanswerable"][closed.right],
            together[places == "unanswerable"],
        ),
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


def evidence_row(name: str, answers: Labeled, goal: str) -> str:
    """How well questions whose evidence was found are told from those where it was not."""
    value = metric.interval(
        metric.auroc,
        answers.right,
        unseen(answers, sorted(answers.signals[0])).probabilities,
        answers.groups,
    )
    start = metric.auroc(answers.right, np.array([row["similarity_top"] for row in answers.signals]))
    found = f"{int(answers.right.sum())} of {len(answers)} questions"
    return figure(f"evidence {name}, {found}", value, f"{start:.2f} by similarity", goal)


def report(kept: Kept, tier: int, last: bool, form: str) -> str:
    """Measure everything and write it as Markdown. The questions kept aside are measured in the last run only.

    What depends on no form, and questions without an answer, are measured in template form only.
    """
    lines = [
        "Questions that chose the design, by cross-validation:",
        "",
        *ranking_rows(kept, tier, aside=False),
        "",
        *reply_rows(kept, aside=False),
    ]
    if last:
        lines += ["", "Questions kept aside, by calibrators of the others:", ""]
        lines += [*ranking_rows(kept, tier, aside=True), "", *reply_rows(kept, aside=True)]
    if form == "template":
        lines += ["", "| figure | value (95% interval) | start | goal |", "|---|---|---|---|"]
        lines += unanswerable_rows(kept, tier)
        for name, found in _EVIDENCE.items():
            if len(answers := kept.labeled(name)):
                lines.append(evidence_row(found, answers, ">= 0.85"))
    pools = {
        setting: (part(kept, names, aside=False), signal.features(tier, with_memory))
        for setting, (names, with_memory) in _SETTINGS.items()
    }
    if len(second := kept.labeled(kept.second(_TOLD))):
        pools["three of four told, second model"] = second, signal.features(0, True, chained=True)
    pools = {name: pool for name, pool in pools.items() if pool[0].rare >= _FEWEST_RARE}
    lines += ["", *budget.rows(pools, simulated=form == "template"), "", *budget.label_rows(pools)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--form", choices=FORMS, default="chat", help="how the model is asked (%(default)s)")
    parser.add_argument("--second", type=Path, help="GGUF file of the second model, readable by the server")
    parser.add_argument("--answers", type=Path, help="where answers are kept from run to run")
    parser.add_argument("--limit", type=int, default=100_000, help="most questions of a set")
    parser.add_argument("--minutes", type=float, default=90, help="when to stop answering (%(default)s)")
    parser.add_argument("--last", action="store_true", help="measure the questions kept aside too")
    parser.add_argument("--rankings", type=Path, help="write the rankings to ship into this file")
    parser.add_argument(
        "--write", type=Path, help="put the tables into this file, between the form's markers"
    )
    options = parser.parse_args()
    kept = options.answers or Path(tempfile.gettempdir()) / f"mindful-confidence-{options.form}.jsonl"
    asked = [
        questions
        for questions in sets(options.data, options.limit)
        if options.form == "template" or questions.name != "unanswerable"
    ]
    with Bench(os.environ["MINDFUL_DSN"], options.second, kept, options.minutes * 60, options.form) as bench:
        for questions in asked:
            bench.answer(questions)
        if options.form == "template":  # evidence does not depend on the form
            for questions in asked:
                bench.look_for_evidence(questions)
        if options.rankings:
            sha256 = bench.one("select sha256 from model where name = %s", FIRST)
            source = bench.one("select source from model where name = %s", FIRST)
            found = rankings(bench.kept, sha256, Path(source).stem, options.form, bench.tier)
            options.rankings.write_text(json.dumps(found, indent=1) + "\n")
    text = report(bench.kept, bench.tier, options.last, options.form)
    print(text, end="")
    if options.write:
        put(options.write, options.form, text)


if __name__ == "__main__":
    main()
