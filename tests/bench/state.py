"""Conversations that go on: time to the first token late in one, on another connection, and what keeping states costs.

Each measurement gives the arguments of run.py's Figure: what, unit, ours, the peer's, goal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg.types.json import Jsonb
from support.deletion import delete

Connecting = Callable[[], psycopg.Connection]
Measured = tuple[str, str, list[float], list[float], str]

TURNS = 20
REPLY = 40
HISTORY = 24

_FACTS = """select memory_insert_many(jsonb_agg(jsonb_build_object('content', content))) from (
    select short_desc as content from pg_settings order by name limit 100) s"""
_QUESTIONS = (
    "select 'What is this: ' || description from pg_description where length(description) > 30 limit %s"
)
_OFF = """create or replace function _mindful.kv_state_limits(
        out enabled boolean, out tenant_bytes bigint, out total_bytes bigint)
    language sql immutable parallel safe security invoker
    begin atomic select false, 0::bigint, 0::bigint; end"""


def late_turn(connect: Connecting, repeats: int) -> list[Measured]:
    """The first token of a conversation's turn 20 against that of its turn 2, in one connection, with memories."""
    late, early = [], []
    for _ in range(repeats):
        with connect() as db, _undone(db):
            db.execute(_FACTS)
            questions = [row[0] for row in db.execute(_QUESTIONS, (TURNS,))]
            session = _session(db)
            taken = [_first_token_ms(db, session, question, REPLY) for question in questions]
            late.append(taken[TURNS - 1])
            early.append(taken[1])
    return [(f"first token of turn {TURNS}, against turn 2", "ms", late, early, "<= 1.5")]


def other_connection(connect: Connecting, repeats: int) -> list[Measured]:
    """The first token of a conversation that goes on elsewhere, by its state against by evaluating its history."""
    with connect() as db:
        session = _session(db)
        texts = [row[0] for row in db.execute(_QUESTIONS, (HISTORY * 2,))]
        told = [f"{texts[at]} {texts[at + HISTORY]}" for at in range(HISTORY)]
        messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(told)]
        db.execute("select message_insert_many(%s, %s)", (session, Jsonb(messages)))
        try:
            tokens = _one(
                db,
                "select prompt_tokens from llm_chat_detail('And now?', %s, max_tokens => 1, memories => 0)",
                session,
            )
            taken: dict[str, list[float]] = {"false": [], "true": []}
            for _ in range(repeats):
                for without, times in taken.items():
                    with connect() as other, _undone(other):
                        other.execute("select llm_generate('Hi', max_tokens => 1), llm_embed('Hi')")
                        delete(other, "kv_state", without)
                        times.append(_first_token_ms(other, session, "And then?", 1, memories=0))
        finally:
            db.execute("delete from mindful.session where session_id = %s", (session,))
    what = f"first token on another connection, {tokens} tokens of history"
    return [(what, "ms", taken["false"], taken["true"], "<= 0.2")]


def cost(connect: Connecting, repeats: int) -> list[Measured]:
    """A whole chat of one and of four turns, with states kept against with none."""
    figures = []
    for turns in (1, 4):
        taken: dict[bool, list[float]] = {True: [], False: []}
        with connect() as db:
            db.execute("select llm_generate('Hi', max_tokens => 1), llm_embed('Hi')")
            questions = [row[0] for row in db.execute(_QUESTIONS, (turns,))]
            for repeat in range(repeats + 1):
                for keeping, times in taken.items():
                    with _undone(db):
                        if not keeping:
                            db.execute(_OFF)
                        seconds = _chat_s(db, questions)
                    if repeat:
                        times.append(seconds * 1000)
        figures.append((f"chat of {turns} turns, states kept", "ms", taken[True], taken[False], "<= 1.1"))
    return figures


def size(connect: Connecting) -> list[tuple[str, float, float]]:
    """Megabytes of states and of their table after conversations that grew turn by turn, and how many were dropped."""
    with connect() as db:
        sessions = [_session(db) for _ in range(2)]
        try:
            questions = [row[0] for row in db.execute(_QUESTIONS, (12,))]
            for question in questions:
                for session in sessions:
                    db.execute("select llm_chat(%s, %s, max_tokens => %s)", (question, session, REPLY))
            states, table = (
                db.execute(
                    """select sum(octet_length(state)), pg_total_relation_size('mindful.kv_state')
                       from mindful.kv_state where session_id = any (%s)""",
                    (sessions,),
                ).fetchone()
                or ()
            )
        finally:
            db.execute("delete from mindful.session where session_id = any (%s)", (sessions,))
    return [("states of two conversations of 12 turns, their table", float(states) / 1e6, table / 1e6)]


@contextmanager
def _undone(db: psycopg.Connection) -> Iterator[None]:
    with db.transaction(force_rollback=True):
        yield


def _session(db: psycopg.Connection) -> str:
    return str(_one(db, "select session_start('bench')"))


def _one(db: psycopg.Connection, sql: str, *arguments: object) -> object:
    row = db.execute(sql.encode(), arguments).fetchone()
    return row and row[0]


def _first_token_ms(
    db: psycopg.Connection, session: str, message: str, max_tokens: int, memories: int = 3
) -> float:
    """Chat through a cursor, and tell how long its first row took."""
    with db.cursor(name="bench") as cursor:
        started = time.perf_counter()
        cursor.execute(
            "select llm_chat_stream(%s, %s, max_tokens => %s, memories => %s)",
            (message, session, max_tokens, memories),
        )
        cursor.fetchone()
        taken = (time.perf_counter() - started) * 1000
        cursor.fetchall()
    return taken


def _chat_s(db: psycopg.Connection, questions: list[str]) -> float:
    session = _session(db)
    db.execute("select llm_generate('Another prompt.', max_tokens => 1)")
    started = time.perf_counter()
    for question in questions:
        db.execute("select llm_chat(%s, %s, max_tokens => %s)", (question, session, REPLY))
    return time.perf_counter() - started
