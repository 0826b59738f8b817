"""Long sessions: what a turn costs late in one, against early, with and without the model.

Each measurement gives the arguments of run.py's Figure: what, unit, ours, the peer's, goal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg.types.json import Jsonb

Connecting = Callable[[], psycopg.Connection]
Measured = tuple[str, str, list[float], list[float], str]

EARLY, LATE = 50, 500
_TEXTS = "select description from pg_description where length(description) between 40 and 160 order by objoid limit %s"
_SETTLE = 2
"""Replies before a measured one: the session's summaries and states are made then."""


def without_model(connect: Connecting, repeats: int) -> list[Measured]:
    """A whole turn with a generator that only repeats a line: context, recall, storing, embedding."""
    return [
        _measured(
            connect,
            repeats,
            "bench-scripted",
            f"turn {LATE} of a session against turn {EARLY}, without the model",
        )
    ]


def with_model(connect: Connecting, repeats: int) -> list[Measured]:
    """The same with the default generator, whose prefix is reused, and 16 tokens of answer."""
    return [
        _measured(
            connect, repeats, None, f"turn {LATE} of a session against turn {EARLY}, 16 tokens of answer"
        )
    ]


def reading(connect: Connecting, repeats: int) -> list[Measured]:
    """Reading the newest turns by index, late against early: what a cache of them could save."""
    taken: dict[int, list[float]] = {EARLY: [], LATE: []}
    with connect() as db:
        for turns, times in taken.items():
            with _told(db, turns) as session:
                for _ in range(repeats * 10):
                    started = time.perf_counter()
                    db.execute("select * from mindful._session_turns(%s, 32)", (session,))
                    times.append((time.perf_counter() - started) * 1000)
    return [
        (
            f"reading the newest turns at turn {LATE} against turn {EARLY}",
            "ms",
            taken[LATE],
            taken[EARLY],
            "<= 1.3",
        )
    ]


def _measured(connect: Connecting, repeats: int, model: str | None, what: str) -> Measured:
    taken: dict[int, list[float]] = {EARLY: [], LATE: []}
    with connect() as db:
        for turns, times in taken.items():
            with _told(db, turns) as session:
                db.execute("select mindful.session_summarize(%s, 'extract')", (session,))
                for number in range(_SETTLE + repeats):
                    started = time.perf_counter()
                    db.execute(
                        "select llm_chat(%s, %s, model => %s, max_tokens => 16)",
                        (f"What is number {number} about?", session, model),
                    )
                    if number >= _SETTLE:
                        times.append((time.perf_counter() - started) * 1000)
    return (what, "ms", taken[LATE], taken[EARLY], "<= 1.3")


@contextmanager
def _told(db: psycopg.Connection, turns: int) -> Iterator[str]:
    """Make a session of so many turns, and undo it."""
    with db.transaction(force_rollback=True):
        script = Jsonb({"default": "It is about what you said before."})
        db.execute("select model_register('bench-scripted', 'generator', 'scripted', '', %s)", (script,))
        texts = [row[0] for row in db.execute(_TEXTS, (turns,))]
        row = db.execute("select session_start('bench')").fetchone()
        said = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
        session = str(row and row[0])
        db.execute("select message_insert_many(%s, %s)", (session, Jsonb(said)))
        yield session
