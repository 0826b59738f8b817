"""Measure whole conversations with the default model: facts, corrections, changes and general questions.

Usage: talk.py [--half HALF] [--show], with MINDFUL_DSN. A user talks in sessions, states facts, corrects and changes
them, and asks in between and in a later session. The conversations are in tests/bench/talk: rules were made on
`design` and `second`. `held` and `third` are by writers who had read neither rules nor the others, and are not shown.
In a file a line is what the user says, `# new` begins a session, and a question is followed by `|||`, its kind, `|||`
and a pattern of right answers, with one of wrong ones after `!!`. Kinds: own (a fact), fix (one that was corrected or
changed), unknown (never told: right is "I do not know"), general (right has neither that nor the pattern). Everything
runs in one transaction that is rolled back.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg

TALKS = Path(__file__).with_name("talk")
HALVES = ("design", "second", "held", "third")
UNSEEN = ("held", "third")
ROLE = "mindful_bench"
UNKNOWN, UNSURE = "I do not know", "I do not know for sure"
KINDS = {"own": "a fact", "fix": "a corrected or changed fact", "unknown": "never told", "general": "general"}


class Asked(NamedTuple):
    """A question of a conversation and its answer."""

    kind: str
    question: str
    reply: str
    right: bool

    @property
    def unsure(self) -> bool:
        """Whether a memory was quoted as unsure."""
        return self.reply.startswith(UNSURE)


def is_right(kind: str, pattern: str, reply: str) -> bool:
    """Return whether a reply is right by a question's kind and pattern."""
    if kind == "unknown":
        return reply.startswith(UNKNOWN)
    right, _, wrong = (part.strip() for part in pattern.partition("!!"))
    if kind == "general":
        return not reply.startswith(UNKNOWN) and not (right and re.search(right, reply, re.IGNORECASE))
    return re.search(right, reply, re.IGNORECASE) is not None and not (
        wrong and re.search(wrong, reply, re.IGNORECASE)
    )


def talk(db: psycopg.Connection, path: Path) -> Iterator[Asked]:
    """Hold one conversation, and yield its questions."""
    session: str | None = None
    for line in filter(None, map(str.strip, path.read_text().splitlines())):
        if line == "# new":
            session = None
            continue
        said, *rest = (part.strip() for part in line.split("|||"))
        session, reply = db.execute(
            "select session_id::text, reply from llm_chat_detail(%s, %s::uuid)", (said, session)
        ).fetchone() or (None, "")
        if rest:
            yield Asked(rest[0], said, reply, is_right(rest[0], rest[1], reply))


def table(asked: list[Asked]) -> Iterator[str]:
    """Yield the rows of the table."""
    yield "| questions | asked | right | of these quoted as unsure |"
    yield "|---|---|---|---|"
    right = Counter(one.kind for one in asked if one.right)
    unsure = Counter(one.kind for one in asked if one.right and one.unsure and one.kind != "unknown")
    for kind, name in KINDS.items():
        of_kind = sum(one.kind == kind for one in asked)
        yield f"| {name} | {of_kind} | {right[kind]} ({right[kind] / max(of_kind, 1):.1%}) | {unsure[kind]} |"


def main() -> None:
    """Run the conversations of a half, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=HALVES, default="held")
    parser.add_argument("--show", action="store_true", help="print the replies that are not right")
    options = parser.parse_args()
    if options.show and options.half in UNSEEN:
        parser.error(f"{options.half} stays unseen: rules that were made on it would fit it")
    asked: list[Asked] = []
    with psycopg.connect(os.environ["MINDFUL_DSN"]) as db:
        if db.execute("select 1 from pg_roles where rolname = %s", (ROLE,)).fetchone() is None:
            db.execute(f"create role {ROLE}")
        db.execute(f"grant mindful_user to {ROLE}")
        db.execute("set local search_path = public, mindful")
        db.execute(f"set local role {ROLE}")
        for path in sorted(TALKS.glob(f"{options.half}_*.txt")):
            db.execute("savepoint talk")
            asked += talk(db, path)
            db.execute("rollback to talk")
        db.rollback()
    for one in asked:
        if options.show and not one.right:
            print(f"{one.kind}: {one.question} -> {one.reply[:160]!r}")
    print("\n".join(table(asked)))


if __name__ == "__main__":
    main()
