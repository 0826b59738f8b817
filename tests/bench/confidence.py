"""Measure whether confidence means something: on real questions, through the SQL functions, with intervals.

Usage: confidence.py DATA [--second GGUF] [--limit N] [--database NAME] [--write FILE]. DATA is a folder with
selfaware_dev.json, nq_open_dev_half.jsonl, rgb_en_fact_dev.jsonl and locomo_dev.json. The server comes from
MINDFUL_DSN, as `make dsn` prints it. Answers are kept in a database of their own, so that a run that was stopped goes
on where it was.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import budget
import numpy as np
import psycopg
from mindful import fit, metric, signal
from mindful.fit import Labelled
from psycopg import sql
from psycopg.conninfo import make_conninfo

FIRST, SECOND = "qa", "qa-second"
_SHOTS = (
    ("What is the capital of France?", "Paris"),
    ("Who wrote the play Romeo and Juliet?", "William Shakespeare"),
    ("In which year did World War II end?", "1945"),
    ("What is the largest planet in our solar system?", "Jupiter"),
    ("Which metal has the chemical symbol Fe?", "Iron"),
)
TEMPLATE = (
    "".join(f"Q: {question}\nA: {answer}\n\n" for question, answer in _SHOTS)
    + "{% for message in messages %}{% if message.role == 'user' %}Q: {{ message.content }}\nA:{% endif %}{% endfor %}"
)
_LAYOUT = "{memories}\n\nQ: {message}"
_AT_ONCE = 100


@dataclass
class Questions:
    """Gold questions of one kind."""

    name: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    memories: int = 0
    tenant: str = "bench"


def closed(data: Path, limit: int) -> Iterator[Questions]:
    """Short questions from SelfAware (TriviaQA's) and NQ-open, and SelfAware's that have no answer."""
    selfaware = json.loads((data / "selfaware_dev.json").read_text())["example"]
    trivia = [row for row in selfaware if row["source"].startswith("triviaqa")]
    yield Questions("TriviaQA", [_gold(row["question"], row["answer"]) for row in trivia[:limit]])
    lines = (data / "nq_open_dev_half.jsonl").read_text().splitlines()
    nq = [json.loads(line) for line in lines]
    yield Questions("NQ-open", [_gold(row["question"], row["answer"]) for row in nq[:limit]])
    unanswerable = [row for row in selfaware if not row["answerable"]]
    yield Questions("unanswerable", [_gold(row["question"], []) for row in unanswerable[: limit // 3]])


def shown(data: Path, limit: int) -> Questions:
    """RGB: each question with passages that support the answer, that contradict it, or that are about other things."""
    found = Questions("RGB")
    for line in (data / "rgb_en_fact_dev.jsonl").read_text().splitlines():
        row = json.loads(line)
        answers = _flat(row["answer"])
        for passages in (row["positive"], row["positive_wrong"], row["negative"]):
            found.rows.append(_gold(row["query"], answers, memories=passages[:3], source=row["query"]))
    found.rows = found.rows[:limit]
    return found


def conversations(
    data: Path, limit: int
) -> Iterator[tuple[Questions, list[dict[str, Any]], dict[str, list[str]]]]:
    """LoCoMo: the questions about each conversation, its turns, and each question's evidence."""
    for at, row in enumerate(json.loads((data / "locomo_dev.json").read_text())):
        turns = [
            {
                "role": "user",
                "content": f"{turn['speaker']}: {turn['text']}",
                "metadata": {"dia_id": turn["dia_id"]},
            }
            for name, session in row["conversation"].items()
            if isinstance(session, list)
            for turn in session
        ]
        questions = Questions(f"LoCoMo {at}", [], 3, f"locomo-{at}")
        for asked in row["qa"][:: max(len(row["qa"]) * 5 // limit, 1)]:
            answers = [str(asked["answer"])] if asked["category"] != 5 else []
            questions.rows.append(_gold(asked["question"], answers, source=f"locomo-{at}"))
        yield questions, turns, {asked["question"]: asked["evidence"] for asked in row["qa"]}


def _flat(answers: Any) -> list[str]:
    return [answers] if isinstance(answers, str) else [text for one in answers for text in _flat(one)]


def _gold(question: str, answers: Sequence[str], **more: Any) -> dict[str, Any]:
    return {"question": question.strip(), "answers": [text for text in answers if text.strip()], **more}


class Bench:
    """A database that holds the answers."""

    def __init__(self, dsn: str, name: str, second: Path | None) -> None:
        with psycopg.connect(dsn, autocommit=True) as db:
            files: dict[str, str] = dict(
                db.execute("select kind, source from mindful.model where is_default").fetchall()
                if db.execute("select to_regclass('mindful.model')").fetchone() != (None,)
                else []
            )
            files.setdefault("generator", os.environ.get("MINDFUL_GENERATOR", ""))
            files.setdefault("embedder", os.environ.get("MINDFUL_EMBEDDER", ""))
            fresh = db.execute("select from pg_database where datname = %s", (name,)).fetchone() is None
            if fresh:
                db.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        self.db = psycopg.connect(make_conninfo(dsn, dbname=name), autocommit=True)
        if fresh:
            self.db.execute("create extension mindful cascade")
        self.db.execute("set search_path = mindful, public")
        if fresh:
            self._register(files, second)

    def _register(self, files: Mapping[str, str], second: Path | None) -> None:
        options = {"template": TEMPLATE, "stop": ["\n"], "system_prompt": "", "layout": _LAYOUT}
        register = "select model_register(%s, %s, 'llama_cpp', %s, %s)"
        self.db.execute(register, (FIRST, "generator", files["generator"], json.dumps(options)))
        self.db.execute(
            register, ("embedder", "embedder", files["embedder"], json.dumps({"context_length": 256}))
        )
        if second is not None:
            self.db.execute(register, (SECOND, "generator", str(second), json.dumps(options)))
            self.db.execute("update model set fallback = %s where name = %s", (SECOND, FIRST))

    def answer(self, questions: Questions) -> None:
        """Have the questions answered that have not been."""
        self.db.execute("select set_config('mindful.tenant', %s, false)", (questions.tenant,))
        known = self.db.execute(
            "select question, memories from gold where tenant = %s", (questions.tenant,)
        ).fetchall()
        rows = [row for row in questions.rows if (row["question"], row.get("memories", [])) not in known]
        tier = 2 if self.one("select fallback from model where name = %s", FIRST) else 1
        for at in range(0, len(rows), _AT_ONCE):
            print(f"{questions.name}: {at} of {len(rows)}", file=sys.stderr, flush=True)
            self.db.execute(
                "select calibration_import(%s, %s, memories => %s, max_tokens => 24, tier => %s)",
                (
                    "\n".join(json.dumps(row) for row in rows[at : at + _AT_ONCE]),
                    FIRST,
                    questions.memories,
                    tier,
                ),
            )

    def one(self, query: str, *arguments: object) -> Any:
        """Return a query's one value."""
        row = self.db.execute(query, arguments).fetchone()
        return row and row[0]

    def remember(self, tenant: str, turns: list[dict[str, Any]]) -> None:
        """Insert a conversation's turns as a session of a tenant, once."""
        self.db.execute("select set_config('mindful.tenant', %s, false)", (tenant,))
        if self.one("select count(*) from memory where tenant = %s", tenant):
            return
        print(f"{tenant}: remembering {len(turns)} turns", file=sys.stderr, flush=True)
        self.db.execute("select count(*) from message_insert_many(session_start(), %s)", (json.dumps(turns),))

    def labelled(self, questions: Sequence[Questions], model: str = FIRST) -> Labelled:
        """Read answers with their signals and labels."""
        asked = {(one.tenant, row["question"]): one.name for one in questions for row in one.rows}
        rows = [
            row
            for row in self.db.execute(
                """select d.tenant, g.question, d.signals, o.correct, g.source
                   from decision d join gold g on g.tenant = d.tenant and g.id = d.gold_id
                   join latest_outcome o on o.tenant = d.tenant and o.decision_id = d.id
                   where d.model = %s order by d.tenant, d.id""",
                (model,),
            )
            if (row[0], row[1]) in asked
        ]
        return fit.labelled(
            [row[2] for row in rows],
            [row[3] for row in rows],
            None,
            [row[4] or f"{row[0]} {row[1]}" for row in rows],
        )


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
    for tier, goal in zip((0, 1, 2), goals, strict=True):
        names = signal.features(tier, with_memory)
        probabilities = said(answers, names)
        value = metric.interval(metric.auroc, answers.right, probabilities, _groups(answers))
        rows.append(figure(f"AUROC, {name}: signals of tier {tier}", value, "", goal))
    error = metric.interval(metric.calibration_error, answers.right, probabilities, _groups(answers))
    floor = metric.noise_floor(answers.right)
    rows.append(figure(f"calibration error, {name}, tier 2", error, f"floor {floor:.3f}", "<= 0.05"))
    return rows


def unanswerable_row(answerable: Labelled, unanswerable: Labelled) -> str:
    """How many questions without an answer fall below the threshold that lets 80% of the right answers through."""
    names = signal.features(2, False)
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


def report(bench: Bench, data: Path, limit: int) -> str:
    """Measure everything and write it as Markdown."""
    sets = list(closed(data, limit))
    passages = shown(data, limit)
    for one in (*sets, passages):
        bench.answer(one)
    told = []
    for questions, turns, _ in conversations(data, limit):
        bench.remember(questions.tenant, turns)
        bench.answer(questions)
        told.append(questions)
    lines = ["| figure | value (95% interval) | start | goal |", "|---|---|---|---|"]
    short = bench.labelled(sets[:2])
    lines += auroc_rows("closed book", short, False, (">= 0.75", "", ">= 0.80"))
    lines += auroc_rows(
        "closed book, TriviaQA alone", bench.labelled(sets[:1]), False, (">= 0.75", "", ">= 0.80")
    )
    lines += auroc_rows("RGB, passages shown", bench.labelled([passages]), True, ("", "", ">= 0.78"))
    lines += auroc_rows("LoCoMo, memories recalled", bench.labelled(told), True, ("", "", ">= 0.78"))
    lines.append(unanswerable_row(short, bench.labelled(sets[2:])))
    pools = {
        "closed book": (short, signal.features(2, False)),
        "RGB and LoCoMo": (bench.labelled([passages, *told]), signal.features(2, True)),
    }
    lines += ["", *budget.rows(pools), "", *budget.alarm_rows()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--second", type=Path, help="GGUF file of the second model, readable by the server")
    parser.add_argument("--limit", type=int, default=100_000, help="most questions of a set")
    parser.add_argument("--database", default="mindful_confidence")
    parser.add_argument("--write", type=Path, help="put the tables into this file, between its markers")
    options = parser.parse_args()
    text = report(
        Bench(os.environ["MINDFUL_DSN"], options.database, options.second), options.data, options.limit
    )
    print(text, end="")
    if options.write:
        before, _, rest = options.write.read_text().partition("<!-- figures -->\n")
        after = rest.partition("<!-- /figures -->")[2]
        options.write.write_text(f"{before}<!-- figures -->\n{text}<!-- /figures -->{after}")


if __name__ == "__main__":
    main()
