"""How soon a cancel is heard, on every path."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

import psycopg
from support.work import AT_WORK

_AT_WORK_S = 0.7


def report(connect: Callable[[], psycopg.Connection], repeats: int) -> list[str]:
    """Cancel each path while it is at work, and write how many milliseconds it went on."""
    lines = ["| a cancel is heard in | median | worst | goal |", "|---|---|---|---|"]
    with connect() as busy, connect() as other:
        busy.execute("select llm_generate('Hi', max_tokens => 1), llm_embed('Hi')")
        for path, sql in AT_WORK.items():
            taken = [_heard_ms(busy, other, sql) for _ in range(repeats)]
            lines.append(f"| {path} | {statistics.median(taken):.0f} ms | {max(taken):.0f} ms | < 200 ms |")
    return lines


def _heard_ms(busy: psycopg.Connection, other: psycopg.Connection, sql: str) -> float:
    asked: list[float] = []

    def ask() -> None:
        time.sleep(_AT_WORK_S)
        asked.append(time.perf_counter())
        other.execute("select pg_cancel_backend(%s)", (busy.info.backend_pid,))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        busy.execute(sql.encode())
    except psycopg.errors.QueryCanceled:
        return (time.perf_counter() - asked[0]) * 1000
    finally:
        thread.join()
    raise AssertionError(f"it ended before it was cancelled: {sql}")
