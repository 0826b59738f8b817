"""How soon a cancel is heard, on every path, at any moment of it."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence

import psycopg
from support.work import AT_WORK, ON_ROWS, insert_rows

_LONGEST_S = 3.0
_HEAD = ["| a cancel is heard in | cancels | median | 9 of 10 | worst | goal |", "|---|---|---|---|---|---|"]
_FIRST = {
    "llm_token_count": "select llm_token_count('Hi')",
    "llm_embed": "select llm_embed('Hi')",
    "llm_generate": "select llm_generate('Hi', max_tokens => 8)",
    "memory_recall": "select count(*) from memory_recall('Oslo')",
}


def report(connect: Callable[[], psycopg.Connection], repeats: int) -> list[str]:
    """Cancel each path at random moments, and write how many milliseconds it went on; all is rolled back."""
    lines = [*_HEAD]
    with connect() as busy, busy.transaction(force_rollback=True):
        busy.execute("select llm_generate('Hi', max_tokens => 1), llm_embed('Hi')")
        insert_rows(busy)
        for path, sql in (AT_WORK | ON_ROWS).items():
            longest, _ = _timed(busy, sql, _LONGEST_S)
            moments = [random.Random(at).uniform(0.01, 0.9 * longest) for at in range(repeats)]
            heard = [_timed(busy, sql, moment) for moment in moments]
            lines.append(_row(path, moments, heard, "< 200 ms"))
    return lines


def first_calls(connect: Callable[[], psycopg.Connection], repeats: int) -> list[str]:
    """Cancel the first call of a new connection at random moments, in which it imports Python and loads a model."""

    def first(sql: str, seconds: float) -> tuple[float, bool]:
        with connect() as fresh:
            return _timed(fresh, sql, seconds)

    lines = [*_HEAD]
    for name, sql in _FIRST.items():
        longest = min(first(sql, _LONGEST_S)[0] for _ in range(3))
        moments = [random.Random(at).uniform(0.01, 0.9 * longest) for at in range(repeats)]
        heard = [first(sql, moment) for moment in moments]
        lines.append(_row(f"first call of a connection: `{name}`", moments, heard, "< 200 ms"))
    return lines


def _row(path: str, moments: Sequence[float], heard: Sequence[tuple[float, bool]], goal: str) -> str:
    late = [
        max(taken - moment, 0) * 1000
        for (taken, cancelled), moment in zip(heard, moments, strict=True)
        if cancelled
    ]
    figures = statistics.median(late), sorted(late)[int(0.9 * len(late))], max(late)
    return (
        f"| {path} | {len(late)} | " + " | ".join(f"{figure:.0f} ms" for figure in figures) + f" | {goal} |"
    )


def _timed(busy: psycopg.Connection, sql: str, seconds: float) -> tuple[float, bool]:
    """Run a statement for so long at most; how long it took, and whether it was cancelled."""
    started = time.perf_counter()
    try:
        with busy.transaction(force_rollback=True):
            busy.execute(f"set local statement_timeout = {max(round(seconds * 1000), 1)}".encode())
            started = time.perf_counter()
            busy.execute(sql.encode())
    except psycopg.errors.QueryCanceled:
        return time.perf_counter() - started, True
    return time.perf_counter() - started, False
