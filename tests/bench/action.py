"""What is gained by trying an answer again: action.py DATA --second GGUF [--questions N] [--picture FILE].

DATA is a folder with selfaware_dev.json and nq_open_dev_half.jsonl. Questions are put in two halves. On the first the
model answers, is measured (`action_evaluate`) and calibrated; on the second the same is done again, which tells what
each way is worth there and whether the verdict of the first half was right. Then the second half is asked in chats,
with every way on, and labeled as by a user: `mindful report` of those is the picture. The server comes from
MINDFUL_DSN, as `make dsn` prints it; nothing of the data is kept.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from answers import FIRST, TOKENS, Bench
from mindful_client import Client
from mindful_client.cli.confidence import picture
from psycopg.conninfo import make_conninfo
from questions import Questions, Row, halves, told, trivia, unlike
from support.markers import put

BUDGET = 0.5
"""Share of wrong answers that a chat may give: few answers of such small models keep less."""
A_DAY = 25
"""Chats of a simulated day."""
WAYS = ("retrieve", "retry", "escalate")
PAIRS = """
    select b.correct, a.correct, c.total_ms, c.action = 'answer', (p.signal_ms ->> 'second')::float8
    from decision c
    join decision p on p.tenant = c.tenant and p.id = c.parent_id
    join latest_outcome a on a.tenant = c.tenant and a.decision_id = c.id
    join latest_outcome b on b.tenant = p.tenant and b.decision_id = p.id
    where c.tenant = %s and c.model = %s and c.ways = %s and c.id > %s order by c.id"""


class Trial:
    """A population in two halves, in a tenant of its own."""

    def __init__(self, bench: Bench, questions: Questions) -> None:
        self._bench, self._name, self._tenant = bench, questions.name, questions.tenant
        self._memories, self.halves = questions.memories, halves(questions.rows)
        bench.enter(questions)

    def rows(self) -> Iterator[str]:
        """Measure each way on both halves."""
        first, second = (self._measured(half) for half in self.halves)
        for way, (pairs, gain) in second.items():
            helps = {} if way == "escalate" else first[way][1]
            yield _row(f"`{way}`, {self._name}", pairs, gain, helps)

    def _measured(self, half: Sequence[Row]) -> dict[str, tuple[list[Any], Row]]:
        """Answer a half, try each way on what is flagged, and calibrate."""
        bench = self._bench
        start = bench.one("select coalesce(max(id), 0) from decision where tenant = %s", self._tenant)
        bench.graded(half, self._memories)
        found = {}
        for way in WAYS:
            if way == "retrieve" and not self._memories:
                continue
            gain: Row = {}
            if way != "escalate":
                query = "select to_jsonb(g) from action_evaluate(%s, %s, %s, %s) g"
                gain = bench.one(query, way, FIRST, len(half), TOKENS)
            found[way] = bench.db.execute(PAIRS, (self._tenant, FIRST, [way], start)).fetchall(), gain
        bench.db.execute("select calibrate(%s, %s)", (FIRST, BUDGET))
        return found


def _row(what: str, pairs: Sequence[Any], gain: Row, helps: Row) -> str:
    if not pairs:
        return f"| {what} | 0 | | | | | |"
    before, after, ms, given, second_ms = (np.array(column) for column in zip(*pairs, strict=True))
    if not gain:
        ms, gain = (
            second_ms,
            {"gained": int((given & after & ~before).sum()), "lost": int((given & before & ~after).sum())},
        )
    low, high = np.quantile(_means(after.astype(float) - before), (0.025, 0.975))
    verdict = f"{'yes' if helps['helps'] else 'no'} (p = {helps['p_value']:.2f})" if helps else ""
    return (
        f"| {what} | {len(pairs)} | {before.mean():.0%} -> {after.mean():.0%} ({low:+.0%} to {high:+.0%}) "
        f"| {int((after & ~before).sum())}, {int((before & ~after).sum())} | {gain['gained']}, {gain['lost']} "
        f"| {np.median(ms.astype(float)):.0f} | {verdict} |"
    )


def _means(values: Any) -> Any:
    picks = np.random.default_rng(0).integers(0, len(values), (1000, len(values)))
    return values[picks].mean(axis=1)


def clarify_rows(bench: Bench, kinds: Sequence[Questions]) -> Iterator[str]:
    """How often a question is asked back, and whether the right answer is among the choices."""
    bench.db.execute(
        "select set_config('mindful.tenant', 'clarify', false), setting_set('chat_clarify', 'true')"
    )
    for questions in kinds:
        asked, named, held = [], 0, 0
        for row in questions.rows:
            found = chat(bench, row, 0)
            asked.append(found["action"] == "clarify")
            if asked[-1]:
                held += found["right"]
                named += found["named"]
        low, high = np.quantile(_means(np.array(asked, dtype=float)), (0.025, 0.975))
        yield (
            f"| {questions.name} | {len(asked)} | **{np.mean(asked):.0%}** ({low:.0%} to {high:.0%}) "
            f"| {held} of {sum(asked)} | {named} of {sum(asked)} |"
        )


ASK = "select to_jsonb(d) from llm_chat_detail(%s, model => %s, max_tokens => %s, memories => %s) d"
JUDGED = """
    select _mindful.answer_grade(coalesce(d.answer, m.content), %s), exists (
        select from jsonb_array_elements_text(m.metadata -> 'clarification' -> 'choices') o (choice)
        where _mindful.answer_grade(o.choice, %s))
    from decision d join memory m on m.tenant = d.tenant and m.id = d.message_id
    where d.tenant = _mindful.tenant() and d.id = %s"""


def chat(bench: Bench, row: Row, memories: int) -> Row:
    """Ask in a new session; tell what was done, and whether the answer, or one of the choices, is right."""
    found: Row = bench.one(ASK, row["question"], FIRST, TOKENS, memories)
    judged = bench.db.execute(JUDGED, (row["answers"], row["answers"], found["decision_id"])).fetchone()
    assert judged is not None
    return found | dict(zip(("right", "named"), judged, strict=True))


def dated(bench: Bench, days: int) -> None:
    """Move what this transaction made back by days."""
    for table in ("generation", "decision", "outcome", "threshold"):
        bench.db.execute(
            f"update {table} set created_at = created_at - make_interval(days => %s) where created_at >= now()",
            (days,),
        )


def chats(bench: Bench, questions: Questions, rows: Sequence[Row]) -> None:
    """Ask, with every way on, as many a day, and label each answer as its user would."""
    bench.enter(questions)
    for key in ("retrieve", "escalate", "retry", "clarify"):
        bench.db.execute("select setting_set(%s, 'true')", (f"chat_{key}",))
    days = -(-len(rows) // A_DAY)
    for at, row in enumerate(rows):
        with bench.db.transaction():
            found = chat(bench, row, questions.memories)
            if found["action"] not in ("clarify", "abstain"):
                bench.db.execute("select answer_label(%s, %s)", (found["message_id"], found["right"]))
            dated(bench, days - at // A_DAY - 1)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--second", type=Path, required=True, help="GGUF file of the second model")
    parser.add_argument("--questions", type=int, default=300, help="most of a set (%(default)s)")
    parser.add_argument("--picture", type=Path, help="draw the report of the chats into this file (SVG)")
    parser.add_argument("--write", type=Path, help="put the tables into this file, between its markers")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Bench(os.environ["MINDFUL_DSN"], options.second, Path(folder) / "answers", 0) as bench,
    ):
        known = told(options.data, options.questions)
        lines = [
            "| way, and questions | tried on | right -> if always taken | made right, made wrong "
            "| the same, of those that replace | median ms | measured before as helping |",
            "|---|---|---|---|---|---|---|",
            *Trial(bench, trivia(options.data, options.questions)).rows(),
            *(trial := Trial(bench, known)).rows(),
            "",
            "| `clarify` | asked | asked back | right without | right among the choices |",
            "|---|---|---|---|---|",
            *clarify_rows(bench, unlike(options.data, options.questions // 3)),
        ]
        text = "\n".join(lines) + "\n"
        print(text, end="", flush=True)
        if options.write:
            put(options.write, "actions", text)
        if options.picture:
            chats(bench, known, trial.halves[1])
            with Client(
                make_conninfo(bench.db.info.dsn, options=f"-c mindful.tenant={known.tenant}")
            ) as client:
                options.picture.write_text(picture(client.confidence_report()))


if __name__ == "__main__":
    main()
