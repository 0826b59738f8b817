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
_TEXTS = """select description from pg_description where length(description) between 40 and 160
    order by objoid offset %s limit %s"""
_SETTLE = 2
"""Replies before a measured one: the sessions' summaries and states are made then."""
_ANSWER = 16


def without_model(connect: Connecting, repeats: int) -> list[Measured]:
    """A whole turn with a generator that only repeats a line: context, recall, storing, embedding."""
    what = f"turn {LATE} of a session against turn {EARLY}, without the model"
    return [_measured(connect, repeats, "bench-scripted", what)]


def with_model(connect: Connecting, repeats: int) -> list[Measured]:
    """The same with the default generator, whose prefix is reused, and answers of the same length."""
    what = f"turn {LATE} of a session against turn {EARLY}, {_ANSWER} tokens of answer"
    return [_measured(connect, repeats, None, what)]


def reading(connect: Connecting, repeats: int) -> list[Measured]:
    """Reading the newest turns by index, late against early: what a cache of them could save."""
    taken: dict[int, list[float]] = {EARLY: [], LATE: []}
    with connect() as db, _told(db) as sessions:
        for _ in range(repeats * 10):
            for turns, session in sessions.items():
                started = time.perf_counter()
                db.execute("select * from _mindful.session_turns(%s, 32)", (session,))
                taken[turns].append((time.perf_counter() - started) * 1000)
    what = f"reading the newest turns at turn {LATE} against turn {EARLY}"
    return [(what, "ms", taken[LATE], taken[EARLY], "<= 1.3")]


def _measured(connect: Connecting, repeats: int, model: str | None, what: str) -> Measured:
    taken: dict[int, list[float]] = {EARLY: [], LATE: []}
    with connect() as db, _told(db) as sessions:
        for session in sessions.values():
            db.execute("select mindful.session_summarize(%s, 'extract')", (session,))
        for number in range(_SETTLE + repeats):
            said = {turns: _said(db, session, number, model) for turns, session in sessions.items()}
            if number >= _SETTLE and (model or all(tokens == _ANSWER for _, tokens in said.values())):
                for turns, (spent, _) in said.items():
                    taken[turns].append(spent)
    return (what, "ms", taken[LATE], taken[EARLY], "<= 1.3")


def _said(db: psycopg.Connection, session: str, number: int, model: str | None) -> tuple[float, int]:
    """Take one turn: its milliseconds, and the tokens of its answer."""
    started = time.perf_counter()
    row = db.execute(
        "select completion_tokens from llm_chat_detail(%s, %s, model => %s, max_tokens => %s)",
        (f"Tell me a long story about number {number}.", session, model, _ANSWER),
    ).fetchone()
    assert row
    return (time.perf_counter() - started) * 1000, row[0]


@contextmanager
def _told(db: psycopg.Connection) -> Iterator[dict[int, str]]:
    """Make a short and a long session of one user, so that recall is among the same memories, and delete them.

    The role is an ordinary user, for whom row-level security holds. Each turn is a transaction of its own, as a user's
    is: in one for all, every turn would add versions of the same rows that the next ones have to pass.
    """
    _clear(db)  # what an interrupted run left
    try:
        script = Jsonb({"default": "It is about what you said before."})
        db.execute("select model_register('bench-scripted', 'generator', 'scripted', '', %s)", (script,))
        db.execute("create role bench_user; grant mindful_user to bench_user; set role bench_user")
        sessions = {}
        for turns, offset in ((EARLY, LATE), (LATE, 0)):
            texts = [row[0] for row in db.execute(_TEXTS, (offset, turns))]
            row = db.execute("select session_start('bench')").fetchone()
            said = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
            sessions[turns] = str(row and row[0])
            db.execute("select message_insert_many(%s, %s)", (sessions[turns], Jsonb(said)))
        yield sessions
    finally:
        _clear(db)


def _clear(db: psycopg.Connection) -> None:
    """Delete the user, the sessions and the model of a run, as far as they are there."""
    db.execute("reset role")
    if db.execute("select from pg_roles where rolname = 'bench_user'").rowcount:
        db.execute("set role bench_user")
        db.execute("select session_delete(session_id) from mindful.session")
        db.execute("reset role; drop role bench_user")
    db.execute("delete from mindful.generation where tenant = 'bench_user'")
    db.execute("select model_unregister(name) from mindful.model where name = 'bench-scripted'")
