"""What choosing by cost saves: cost.py DATA --second GGUF [--told N] [--queries N] [--budgets B ...] [--write FILE].

DATA is a folder with nq_open_dev_half.jsonl and rgb_en_fact_dev.jsonl. The second model is served by `mindful engine`,
the first is embedded. Each set has two halves, each with a tenant of its own. A tenant labels one half
(`gold_evaluate`, `calibrate`) and chats about the other, with chat_escalate on, and with the second model alone. Each
chat is rolled back, so that no question is a memory of the next. The server comes from MINDFUL_DSN, as `make dsn`
prints it. FILE is docs/engines.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from answers import FIRST, SECOND, TOKENS, Bench
from mindful.confidence.threshold import upper_bound
from psycopg import Rollback
from psycopg.errors import ObjectNotInPrerequisiteState
from questions import Questions, Row, halves, passages, told
from support.engine import running_engine
from support.markers import put

ENGINE = ("--when-down", "error", "--slots", "4", "--threads", "1")
"""Each slot reads the examples before the questions once."""
LABEL = "select gold_evaluate(%s, %s, memories => %s, max_tokens => %s, signal_tier => %s)"
ASK = "select to_jsonb(d) from llm_chat_detail(%s, model => %s, max_tokens => %s, memories => %s) d"
CERTIFIED = """
    select count(*) from threshold t join calibrator c on c.tenant = t.tenant and c.id = t.calibrator_id
    where t.tenant = _mindful.tenant() and c.model = %s and t.budget = %s and t.status = 'certified'"""
JUDGED = """
    select d.action in ('answer', 'escalate'), _mindful.answer_grade(coalesce(d.answer, m.content), %s),
        exists (
            select from decision p
            where p.tenant = d.tenant and p.id in (d.id, d.parent_id) and p.signal_ms ? 'second')
    from decision d join memory m on m.tenant = d.tenant and m.id = d.message_id
    where d.tenant = _mindful.tenant() and d.id = %s"""


@dataclass(frozen=True)
class Reply:
    """Whether an answer was given without a flag, whether it is right, and whether the second model was called."""

    given: bool
    right: bool
    called: bool


class Side:
    """A tenant that labels one half of the questions and chats about the other."""

    def __init__(
        self,
        bench: Bench,
        questions: Questions,
        labeled: Sequence[Row],
        asked: Sequence[Row],
        budgets: Sequence[float],
    ) -> None:
        self._bench, self._questions, self._asked = bench, questions, asked
        bench.enter(questions)
        bench.db.execute("select setting_set('chat_escalate', 'true')")
        # Questions with passages of their own are answered one by one.
        one_by_one = any("memories" in row for row in labeled)
        for at, part in enumerate([[row] for row in labeled] if one_by_one else [labeled]):
            print(f"{questions.tenant}: {at} of {len(labeled)}", file=sys.stderr, flush=True)
            keys = ("question", "answers", "source")
            gold = json.dumps([{key: row[key] for key in keys if key in row} for row in part])
            with self._remembered(part[0]):
                for model, tier in ((FIRST, 2), (SECOND, 0)):
                    bench.db.execute(LABEL, (gold, model, questions.memories, TOKENS, tier))
        for model, budget in itertools.product((FIRST, SECOND), budgets):
            with suppress(ObjectNotInPrerequisiteState):  # too few labels, or labels of one kind
                bench.db.execute("select calibrate(%s, %s)", (model, budget))

    def replies(self, budgets: Sequence[float]) -> dict[tuple[str, float], list[Reply]]:
        """Chat about the other half, under each budget, by the chain and by the second model alone."""
        bench = self._bench
        bench.enter(self._questions)
        found: dict[tuple[str, float], list[Reply]] = {
            key: [] for key in itertools.product((FIRST, SECOND), budgets)
        }
        certified = {key: bool(bench.one(CERTIFIED, *key)) for key in found}
        for at, row in enumerate(self._asked):
            print(f"{self._questions.tenant}: chat {at} of {len(self._asked)}", file=sys.stderr, flush=True)
            with self._remembered(row):
                for key, replies in found.items():
                    # Without a threshold all answers are flagged.
                    replies.append(self._reply(row, *key) if certified[key] else Reply(False, False, True))
        return found

    def _reply(self, row: Row, model: str, budget: float) -> Reply:
        db = self._bench.db
        with db.transaction() as transaction:
            db.execute("select setting_set('error_budget', %s)", (str(budget),))
            found = self._bench.one(ASK, row["question"], model, TOKENS, self._questions.memories)
            judged = db.execute(JUDGED, (row["answers"], found["decision_id"])).fetchone()
            assert judged is not None
            reply = Reply(*judged)
            raise Rollback(transaction)
        return reply

    @contextmanager
    def _remembered(self, row: Row) -> Iterator[None]:
        """Remember the passages of a question while it is asked."""
        texts = json.dumps([{"content": text} for text in row.get("memories", ())])
        ids = self._bench.db.execute("select memory_insert_many(%s)", (texts,)).fetchall()
        yield
        self._bench.db.execute("delete from memory where id = any (%s)", ([one for (one,) in ids],))


def sides(bench: Bench, questions: Questions, budgets: Sequence[float]) -> list[Side]:
    """Label each half of the questions in a tenant of its own, which chats about the other."""
    one, other = halves(questions.rows)
    return [
        Side(bench, replace(questions, tenant=f"{questions.tenant}-{at}"), labeled, asked, budgets)
        for at, (labeled, asked) in enumerate(((one, other), (other, one)))
    ]


def rows(bench: Bench, questions: Questions, budgets: Sequence[float]) -> Iterator[str]:
    """Compare, under each budget, the first model, the chain of both, and the second for every question."""
    found = [side.replies(budgets) for side in sides(bench, questions, budgets)]
    for budget in budgets:
        chain, second = (
            [reply for side in found for reply in side[model, budget]] for model in (FIRST, SECOND)
        )
        ways = {
            "embedded": [replace(one, given=one.given and not one.called, called=False) for one in chain],
            "embedded, then served": chain,
            "served": [replace(one, called=True) for one in second],
        }
        for way, replies in ways.items():
            yield f"| {questions.name} | {budget:.0%} | {way} | {_figures(replies)} |"


def _figures(replies: Sequence[Reply]) -> str:
    given = [reply for reply in replies if reply.given]
    wrong, called = sum(not reply.right for reply in given), sum(reply.called for reply in replies)
    share = f"{wrong / len(given):.0%} ({_interval(wrong, len(given))})" if given else "none certified"
    return f"{len(given)} of {len(replies)} | {share} | {called / len(replies):.0%}"


def _interval(wrong: int, given: int) -> str:
    """Write the interval of 95% by Clopper and Pearson."""
    low, high = 1 - upper_bound(given - wrong, given, 0.025), upper_bound(wrong, given, 0.025)
    return f"{low:.0%} to {high:.0%}"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--second", type=Path, required=True, help="GGUF file of the second model")
    parser.add_argument("--told", type=int, default=160, help="most of NQ-open's questions (%(default)s)")
    parser.add_argument("--queries", type=int, default=50, help="most of RGB's queries (%(default)s)")
    parser.add_argument("--budgets", type=float, nargs="+", default=[0.5, 0.3, 0.2])
    parser.add_argument("--write", type=Path, help="put the table into this file, between its markers")
    options = parser.parse_args()
    started = time.monotonic()
    lines = [
        "| questions | budget | asked | given without a flag | wrong of these (95%) | called the served model |",
        "|---|---|---|---|---|---|",
    ]
    sets = [
        told(options.data, options.told),
        passages(
            options.data, 2 * options.queries, ("positive", "negative"), "RGB, right or unrelated passages"
        ),
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        Bench(os.environ["MINDFUL_DSN"], options.second, Path(folder) / "answers", 0) as bench,
        running_engine(bench.db, bench.db.info.dsn, SECOND, *ENGINE, count=1),
    ):
        for questions in filter(lambda one: one.rows, sets):
            for line in rows(bench, replace(questions, memories=3), options.budgets):
                lines.append(line)
                print(line, file=sys.stderr, flush=True)
    minutes = (time.monotonic() - started) / 60
    lines += [
        "",
        f"{minutes:.0f} minutes, {os.cpu_count()} processors, load {os.getloadavg()[1]:.1f} at the end.",
    ]
    text = "\n".join(lines) + "\n"
    print(text, end="", flush=True)
    if options.write:
        put(options.write, "cost", text)


if __name__ == "__main__":
    main()
