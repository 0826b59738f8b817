"""What recording a call in the table generation costs."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

Connect = Callable[[], psycopg.Connection]
Row = tuple[str, str, list[float], list[float], str]

TOKENS = 32
CALLS = 5
"""Pairs of calls a repeat: what is looked for is small."""


def cost(connect: Connect, repeats: int) -> list[Row]:
    """Milliseconds of a call that is logged, its commit included, against one that is not; they take turns."""
    taken: dict[str, list[float]] = {"true": [], "false": []}
    with connect() as db:
        try:
            for call in range(1 + repeats * CALLS):
                for logged, times in taken.items():
                    db.execute("select setting_set('generation_log', %s)", (logged,))
                    started = time.perf_counter()
                    db.execute(
                        "select llm_generate('Write a story about the sea.', max_tokens => %s)", (TOKENS,)
                    )
                    if call:  # the first loads the model
                        times.append((time.perf_counter() - started) * 1000)
        finally:
            db.execute("select setting_set('generation_log', 'null')")
    return [(f"call of {TOKENS} tokens, logged, against not", "ms", taken["true"], taken["false"], "<= 1.02")]
