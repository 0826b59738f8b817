"""Measure whether a chat is still shown a fact after it was asked for in other words.

Usage: again.py [--half first|second] [--facts N] [--seed N] [--model NAME] [--show] [--write FILE]. The server comes
from MINDFUL_DSN, as `make dsn` prints it. A role of its own states the facts among small talk, in sessions of 10 to 20
turns. Then it asks for each fact 8 times, in other words and in a new session each time, in random order. Every chat is
stored, as a user's is. The half `second` has other kinds of facts in other words; rules were chosen on both.
Everything runs in one transaction that is rolled back.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

ROLE = "mindful_bench"
TIMES = 8


@dataclass(frozen=True)
class Fact:
    """What is stated once, what an answer to it must hold, and eight ways to ask for it."""

    statement: str
    answer: str
    questions: Sequence[str]


HALVES = {"first": "again.json", "second": "again_second.json"}
"""Kinds of facts: a statement, eight questions, and what fills both; and what is said besides."""


def facts(data: dict[str, Any], count: int, rng: random.Random) -> list[Fact]:
    """Make facts of all kinds. The last of what fills a kind is the answer, or holds it."""
    made = []
    for kind in data["kinds"]:
        for fill in kind["fills"]:
            answer = (
                fill[-1].split(" is ")[-1].removeprefix("under ").removeprefix("in ").removeprefix("the ")
            )
            questions = [question.format(*fill) for question in kind["questions"]]
            made.append(Fact(kind["statement"].format(*fill), answer, questions))
    rng.shuffle(made)
    return made[:count]


def state(
    db: psycopg.Connection, data: dict[str, Any], known: Sequence[Fact], turns: int, rng: random.Random
) -> dict[str, int]:
    """Say everything among small talk, and return the memory of each statement."""
    said = [fact.statement for fact in known]
    lines = said + [rng.choice(data["small_talk"]) for _ in range(turns - len(said))]
    rng.shuffle(lines)
    while lines:
        part = [lines.pop() for _ in range(min(len(lines), rng.randint(5, 10)))]
        messages = [
            {"role": role, "content": content}
            for line in part
            for role, content in (("user", line), ("assistant", rng.choice(data["replies"])))
        ]
        db.execute("select message_insert_many(session_start('Small talk'), %s)", (Jsonb(messages),))
    rows = db.execute("select content, id from memory where role = 'user'").fetchall()
    return {content: id_ for content, id_ in rows if content in set(said)}


@dataclass(frozen=True)
class Asked:
    """What came of one chat."""

    time: int
    shown: bool
    first: bool
    right: bool
    memories: int
    seconds: float


def ask(
    db: psycopg.Connection,
    known: Sequence[Fact],
    ids: dict[str, int],
    model: str | None,
    rng: random.Random,
    show: bool,
) -> Iterator[Asked]:
    """Ask for every fact in all ways, over all facts in random order."""
    ways = {fact.statement: rng.sample(list(fact.questions), len(fact.questions)) for fact in known}
    order = [fact for fact in known for _ in range(TIMES)]
    rng.shuffle(order)
    for fact in order:
        time_ = TIMES - len(ways[fact.statement]) + 1
        question = ways[fact.statement].pop()
        started = time.perf_counter()
        row = db.execute(
            "select reply, memory_ids from llm_chat_detail(%s, model => %s, max_tokens => 32)",
            (question, model),
        ).fetchone()
        assert row is not None
        reply, memory_ids = row
        if show and (ids[fact.statement] not in memory_ids or fact.answer.lower() not in reply.lower()):
            print(f"{time_}. {question} -> {reply[:120]!r} ({fact.statement})", flush=True)
        yield Asked(
            time_,
            ids[fact.statement] in memory_ids,
            memory_ids[:1] == [ids[fact.statement]],
            fact.answer.lower() in reply.lower(),
            len(memory_ids),
            time.perf_counter() - started,
        )


def table(asked: Sequence[Asked]) -> Iterator[str]:
    """Print one row for each time."""
    yield "| asked for the | chats | shown the fact | shown it first | answered rightly | memories shown | seconds |"
    yield "|---|---|---|---|---|---|---|"
    for time_ in range(1, TIMES + 1):
        rows = [one for one in asked if one.time == time_]
        count = len(rows)
        columns = ("shown", "first", "right", "memories", "seconds")
        shown, first, right, memories, seconds = (
            sum(getattr(row, name) for row in rows) / count for name in columns
        )
        yield f"| {time_}. time | {count} | {shown:.3f} | {first:.3f} | {right:.3f} | {memories:.1f} | {seconds:.2f} |"


def main() -> None:
    """Run the bench, and print or write its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=list(HALVES), default="first")
    parser.add_argument("--facts", type=int, default=60)
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model")
    parser.add_argument("--show", action="store_true", help="print the replies that are not right")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    data = json.loads(Path(__file__).with_name(HALVES[options.half]).read_text())
    known = facts(data, options.facts, rng)
    with psycopg.connect(os.environ["MINDFUL_DSN"]) as db:
        if db.execute("select 1 from pg_roles where rolname = %s", (ROLE,)).fetchone() is None:
            db.execute(f"create role {ROLE}")
        db.execute(f"grant mindful_user to {ROLE}")
        db.execute("set local search_path = public, mindful")
        db.execute(f"set local role {ROLE}")
        ids = state(db, data, known, options.turns, rng)
        asked = list(ask(db, known, ids, options.model, rng, options.show))
        db.rollback()
    lines = [*table(asked)]
    print("\n".join(lines))
    if options.write:
        options.write.write_text(
            "# Asked again\n\nAs `make bench-again` printed it.\n\n" + "\n".join(lines) + "\n"
        )


if __name__ == "__main__":
    main()
