"""Many connections at once: total speed, fairness, failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

CONNECTIONS = (1, 2, 4, 8, 16, 32)
TOKENS = 48
CALLS = 2


@dataclass
class Load:
    """What happened with so many connections: tokens per second in all and of each, and errors."""

    connections: int
    total: float
    rates: list[float]
    errors: list[str]

    def row(self, best: float) -> str:
        """Write it as a row of a Markdown table, beside the best total of all loads."""
        spread = max(self.rates) / min(self.rates) if min(self.rates) else float("inf")
        return (
            f"| {self.connections} | {self.total:.0f} | **{self.total / best:.2f}** | {spread:.2f} "
            f"| {len(self.errors)} |"
        )


def report(connect: Callable[[], psycopg.Connection]) -> list[str]:
    """Measure each number of connections and write the table."""
    loads = [_load(connect, number) for number in CONNECTIONS]
    best = max(load.total for load in loads)
    return [
        f"| connections, {CALLS} calls of {TOKENS} tokens each | tokens/s in all | of the best | best to worst "
        "connection | failures |",
        "|---|---|---|---|---|",
        *(load.row(best) for load in loads),
    ]


def _load(connect: Callable[[], psycopg.Connection], number: int) -> Load:
    connections = [connect() for _ in range(number)]
    for connection in connections:
        connection.execute("select llm_generate('Hi', max_tokens => 1)")
    barrier = threading.Barrier(number + 1)
    rates, errors = [0.0] * number, []

    def work(at: int) -> None:
        barrier.wait()
        started, made = time.perf_counter(), 0
        try:
            for call in range(CALLS):
                made += _generate(
                    connections[at], f"Write a long story about the number {at * CALLS + call}."
                )
        except psycopg.Error as error:
            errors.append(str(error))
        rates[at] = made / (time.perf_counter() - started)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(number)]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return Load(number, number * CALLS * TOKENS / seconds, rates, errors)


def _generate(connection: psycopg.Connection, prompt: str) -> int:
    row = connection.execute(
        "select (llm_generate_detail(%s, max_tokens => %s)).completion_tokens", (prompt, TOKENS)
    ).fetchone()
    return int(row[0]) if row else 0
