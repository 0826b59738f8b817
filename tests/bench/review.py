"""What it costs to know how sure an answer is: the signals of every answer, and a second look, against the answer.

Each measurement gives the arguments of run.py's Figure: what, unit, ours, the peer's, goal.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

Connecting = Callable[[], psycopg.Connection]
Measured = tuple[str, str, list[float], list[float], str]

TOKENS = 64
_FACTS = """select count(*) from memory_insert_many((
    select jsonb_agg(jsonb_build_object('content', short_desc))
    from (select * from pg_settings order by name limit 50) s))"""
_ASKED = "Tell a long story about {}."
_HEROES = ("the sea", "a lighthouse", "a clock", "two rivers", "the moon", "a library", "an old bridge")


def cost(connect: Connecting, repeats: int) -> list[Measured]:
    """Milliseconds of signals and of self_review, each against those of generating the answer."""
    answers: list[float] = []
    free: list[float] = []
    reviews: list[float] = []
    with connect() as db:
        for repeat in range(-1, repeats):
            answered, freely, reviewed = _once(db, _ASKED.format(_HEROES[repeat % len(_HEROES)]))
            if repeat >= 0:  # the first loads the models
                answers.append(answered)
                free.append(freely)
                reviews.append(reviewed)
    return [
        (f"signals of every answer, of {TOKENS} tokens", "ms", free, answers, "<= 0.03"),
        (f"self_review of an answer of {TOKENS} tokens", "ms", reviews, answers, "<= 0.25"),
    ]


def _once(db: psycopg.Connection, question: str) -> tuple[float, float, float]:
    """Ask, and look again, with memories in the prompt; nothing is kept."""
    with db.transaction(force_rollback=True):
        db.execute(_FACTS)
        row = db.execute(
            """select message_id, decision_id, total_ms, completion_tokens
               from llm_chat_detail(%s, max_tokens => %s)""",
            (question, TOKENS),
        ).fetchone()
        assert row is not None
        message_id, decision_id, answered, tokens = row
        assert tokens == TOKENS, f"the answer has {tokens} tokens"
        signals = "select (signal_ms ->> 'free')::float8 from mindful.decision where id = %s"
        free = db.execute(signals, (decision_id,)).fetchone()
        assert free is not None
        started = time.perf_counter()
        db.execute("select self_review(%s)", (message_id,))
        return answered, free[0], (time.perf_counter() - started) * 1000
