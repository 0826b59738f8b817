"""Measure whether a chat answers rightly from what it is shown, and says so where memories do not tell.

Usage: shown.py [--half HALF] [--worlds N] [--model NAME] [--show] [--write FILE]. The server comes from MINDFUL_DSN, as
`make dsn` prints it. A user has the memories of one world at a time, and is asked about each fact of it, about facts
that no memory tells, and for small talk and general knowledge. Every question has a new session, and nothing of it
stays. Rules were made on design, second, third, fourth, changes and sixth. held, fifth and seventh have other kinds of
facts in other words: no rule was made on them, and their replies are not printed. changes asks for facts that a newer
memory replaces, and for facts ("kept") that a newer memory of another person or thing does not. Everything runs in one
transaction that is rolled back.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

ROLE = "mindful_bench"
DATA = {
    half: data
    for name in ("shown", "shown_second", "shown_fourth", "shown_changes", "shown_sixth")
    for half, data in json.loads(Path(__file__).with_name(f"{name}.json").read_text()).items()
}
UNSEEN = ("held", "fifth", "seventh")
UNKNOWN = "I do not know"
_ONE_FACT = ("single", "name", "date", "number")
_TALK = ("talk among memories", "talk without memories")


@dataclass(frozen=True)
class Question:
    """A question and its kind, the answers that are right (parts of one joined by &), and words that make it wrong."""

    kind: str
    text: str
    answers: Sequence[str] = ()
    wrong: Sequence[str] = ()

    def is_right(self, reply: str) -> bool:
        """Return whether a reply has an accepted answer, and none that a newer fact replaced."""
        if self.kind in _TALK:
            return not reply.startswith(UNKNOWN)
        if self.kind == "absent":
            return reply.startswith(UNKNOWN)
        if any(_has(reply, wrong) for wrong in self.wrong):
            return False
        return any(all(_has(reply, part) for part in answer.split("&")) for answer in self.answers)


def _has(reply: str, part: str) -> bool:
    return re.search(rf"(?<![\w,.]){re.escape(part.lower())}(?!\w)", reply.lower()) is not None


def _filled(value: Any, world: dict[str, str]) -> Any:
    return [one.format(**world) for one in value] if isinstance(value, list) else value.format(**world)


def worlds(half: str) -> Iterator[tuple[list[str], list[Question]]]:
    """Yield the memories and the questions of each world."""
    data = DATA[half]
    if isinstance(data, list):
        for hand in data:
            yield hand["memories"], [Question(*question) for question in hand["questions"]]
        return
    talk = [Question(_TALK[0], text) for text in data["other"]]
    for number, world in enumerate(data["worlds"]):
        memories = [text for kind in data["kinds"] for text in _filled(kind["statements"], world)]
        asked = [
            Question(one["type"], *(_filled(one[key], world) for key in ("question", "answers", "wrong")))
            for one in data["kinds"]
        ]
        yield memories, asked + (talk if number == 0 else [])
    for hand in data["hand"]:
        asked = [
            Question(one["type"], one["question"], one["answers"], one["wrong"]) for one in hand["questions"]
        ]
        yield hand["memories"], asked
    yield [], [Question(_TALK[1], text) for text in data["other"]]


@dataclass(frozen=True)
class Asked:
    """What came of one question."""

    kind: str
    right: bool
    hedged: bool
    seconds: float
    memories: int


def ask(db: psycopg.Connection, model: str | None, half: str, most: int, show: bool) -> Iterator[Asked]:
    """Ask all questions of some worlds."""
    for memories, questions in list(worlds(half))[:most]:
        db.execute("savepoint world")
        for memory in memories:
            db.execute("select memory_insert(%s)", (memory,))
        for question in questions:
            db.execute("savepoint question")
            started = time.perf_counter()
            row = db.execute(
                "select reply, memory_ids from llm_chat_detail(%s, model => %s)", (question.text, model)
            ).fetchone()
            spent = time.perf_counter() - started
            assert row is not None
            reply, ids = row
            right = question.is_right(reply)
            if show and not right:
                print(f"{question.kind}: {question.text} -> {reply[:120]!r}", flush=True)
            yield Asked(question.kind, right, reply.startswith(UNKNOWN), spent, len(ids))
            db.execute("rollback to question")
        db.execute("rollback to world")


def table(asked: Sequence[Asked]) -> Iterator[str]:
    """Print a row for each kind of question."""
    yield "| questions | asked | right | quoted as unsure | memories shown | seconds (median) |"
    yield "|---|---|---|---|---|---|"
    kinds = list(dict.fromkeys(one.kind for one in asked))
    rows = [(kind, [one for one in asked if one.kind == kind]) for kind in kinds]
    if one_fact := [one for one in asked if one.kind in _ONE_FACT]:
        rows.insert(0, ("**one fact** (single, name, date, number)", one_fact))
    for name, found in rows:
        right = sum(one.right for one in found)
        hedged = sum(one.right and one.hedged for one in found)
        median = sorted(one.seconds for one in found)[len(found) // 2]
        shown = sum(one.memories for one in found) / len(found)
        yield (
            f"| {name} | {len(found)} | {right} ({right / len(found):.1%}) | {hedged} | {shown:.1f} | {median:.2f} |"
        )


def main() -> None:
    """Run the bench, and print or append its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=tuple(DATA), default="held")
    parser.add_argument("--worlds", type=int, default=100)
    parser.add_argument("--model")
    parser.add_argument("--show", action="store_true", help="print the replies that are not right")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if options.show and options.half in UNSEEN:
        parser.error(f"{options.half} stays unseen: rules that were made on it would fit it")
    with psycopg.connect(os.environ["MINDFUL_DSN"]) as db:
        if db.execute("select 1 from pg_roles where rolname = %s", (ROLE,)).fetchone() is None:
            db.execute(f"create role {ROLE}")
        db.execute(f"grant mindful_user to {ROLE}")
        db.execute("set local search_path = public, mindful")
        db.execute(f"set local role {ROLE}")
        asked = list(ask(db, options.model, options.half, options.worlds, options.show))
        db.rollback()
    lines = [*table(asked)]
    print("\n".join(lines))
    if options.write:
        with options.write.open("a") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
