"""The embedded engine against one process for all connections, and against that process without PostgreSQL.

Sides take turns, round by round; figures are medians, and ratios are medians of the rounds' ratios. Usage: engine.py
[--rounds N] [--connections N] [--crowd N] [--threads N] [--write FILE], with MINDFUL_DSN. FILE is docs/engines.md.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from psycopg.types.json import Jsonb
from support.engine import Engine, running_engine
from support.markers import put
from support.models import EMBEDDER, GENERATOR

TOKENS = 64
CROWD_TOKENS = 8
ROWS = 200
FIRST_CALLS = 5
MODES = ("embedded", "served")
PYTHON = "first call of PL/Python of a connection, ms"
"""Of an empty body: the part of a first call that both engines have in common and that mindful cannot change."""
MEMORY = "memory of a connection that used both models, MB"
EMBEDDING, TOKEN = "first embedding of a connection, ms", "first token of a connection, ms"
PROCESSOR = " of processor time, the engine's included"
NEW = f"new connections x {TOKENS} tokens, tokens/s"
WARM = "connections that used the model before, tokens/s"
MANY = "prompts of one llm_generate_many, tokens/s"
INSERTED = "rows/s of memory_insert_many"
GOALS = {
    MEMORY: "served <= 20",
    EMBEDDING: "<= 0.25",
    TOKEN: "<= 0.25",
    NEW: ">= 2, and >= 0.9 of the engine without PostgreSQL",
    INSERTED: ">= 0.9",
}
"""Of served : embedded where nothing else is named."""


def prompt(at: int) -> str:
    return f"Write a long story about a ship with {at + 3} sailors and their captain."


def one(connection: psycopg.Connection, sql: str, *arguments: Any) -> Any:
    row = connection.execute(sql.encode(), arguments).fetchone()
    assert row is not None
    return row[0]


class Bench:
    def __init__(self, dsn: str, engine: Engine, connections: int) -> None:
        self.dsn, self.engine, self.connections = dsn, engine, connections
        self.admin = self.connect()

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.dsn, autocommit=True)

    def choose(self, mode: str) -> None:
        for name in (GENERATOR, EMBEDDER):
            address = None if mode == "embedded" else f"unix:{self.engine.directory}/{name}.sock"
            self.admin.execute("select mindful.model_serve(%s, %s, 'error')", (name, address))

    def memory_mb(self) -> float:
        """Anonymous memory of a connection that has used both models."""
        with self.connect() as connection:
            connection.execute("select llm_embed('a text'), llm_generate('Hi', max_tokens => 8)")
            return float(one(connection, "select private_bytes from mindful_status()")) / 1e6

    def first(self, name: str, sql: str) -> dict[str, float]:
        """Median time of the first call of new connections, and its processor time with the engine's."""
        found = []
        for _ in range(FIRST_CALLS):
            with self.connect() as connection:
                pids = [connection.info.backend_pid, *self.engine.children()]
                began, started = processor_ms(pids), time.perf_counter()
                connection.execute(sql.encode())
                found.append(((time.perf_counter() - started) * 1000, processor_ms(pids) - began))
        return dict(
            zip((name, name + PROCESSOR), map(statistics.median, zip(*found, strict=True)), strict=True)
        )

    def together(self, work: Callable[[int], int]) -> float:
        """Tokens a second of new connections that all begin at once."""
        started = time.perf_counter()
        with ThreadPoolExecutor(self.connections) as pool:
            tokens = sum(pool.map(work, range(self.connections)))
        return tokens / (time.perf_counter() - started)

    def generate(self, at: int) -> int:
        with self.connect() as connection:
            return self.asked(connection, at)

    def asked(self, connection: psycopg.Connection, at: int) -> int:
        sql = "select completion_tokens from llm_generate_detail(%s, max_tokens => %s)"
        return int(one(connection, sql, prompt(at), TOKENS))

    def warm(self) -> float:
        """Tokens a second of as many connections that have used the model before."""
        with ExitStack() as opened:
            connections = [opened.enter_context(self.connect()) for _ in range(self.connections)]
            for connection in connections:
                connection.execute("select llm_generate('Hi', max_tokens => 1)")
            return self.together(lambda at: self.asked(connections[at], at))

    def many(self) -> float:
        """Tokens a second of one llm_generate_many of the same prompts."""
        with self.connect() as connection:
            connection.execute("select llm_generate_many('{Hi,Ho}', max_tokens => 1)")
            before = one(connection, "select coalesce(max(id), 0) from generation")
            started = time.perf_counter()
            prompts = [prompt(at) for at in range(self.connections)]
            connection.execute("select llm_generate_many(%s, max_tokens => %s)", (prompts, TOKENS))
            seconds = time.perf_counter() - started
            tokens = one(connection, "select sum(completion_tokens) from generation where id > %s", before)
            return float(tokens) / seconds

    def crowd(self, connections: int) -> tuple[int, float, float]:
        """Ask from many new connections at once. Return failures, and the seconds of the slowest and of all."""

        def ask(at: int) -> float | None:
            began = time.perf_counter()
            try:
                with self.connect() as connection:
                    connection.execute(
                        "select llm_generate(%s, max_tokens => %s)", (prompt(at), CROWD_TOKENS)
                    )
            except psycopg.Error:
                return None
            return time.perf_counter() - began

        started = time.perf_counter()
        with ThreadPoolExecutor(connections) as pool:
            taken = list(pool.map(ask, range(connections)))
        answered = [seconds for seconds in taken if seconds is not None]
        return connections - len(answered), max(answered, default=0.0), time.perf_counter() - started

    def ask_engine(self, at: int) -> int:
        """The same request without PostgreSQL, log-probabilities included."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(f"{self.engine.directory}/{GENERATOR}.sock")
        body = {
            "messages": [
                {"role": "system", "content": "You are a helpful assistant. Answer briefly."},
                {"role": "user", "content": prompt(at)},
            ],
            "max_tokens": TOKENS,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 10,
        }
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return int(answer["usage"]["completion_tokens"])

    def rows_a_second(self) -> float:
        texts = [
            f"On day {at} Marta bought {at * 7} apples and wrote to Tomas about the weather."
            for at in range(ROWS)
        ]
        with self.connect() as connection:
            connection.execute("select llm_embed('warm')")
            with connection.transaction(force_rollback=True):
                started = time.perf_counter()
                memories = Jsonb([{"content": text} for text in texts])
                connection.execute("select count(*) from memory_insert_many(%s)", (memories,))
                return ROWS / (time.perf_counter() - started)


def processor_ms(pids: Sequence[int]) -> float:
    """Return the processor time that processes have used."""
    tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def measured(bench: Bench, rounds: int) -> tuple[dict[str, dict[str, list[float]]], list[float]]:
    """Return the figures of each line and side, round by round, and the load of each round."""
    measures: list[Callable[[], dict[str, float]]] = [
        lambda: {MEMORY: bench.memory_mb()},
        lambda: bench.first(PYTHON, "do language plpython3u 'pass'"),
        lambda: bench.first(EMBEDDING, "select llm_embed('a text')"),
        lambda: bench.first(TOKEN, "select llm_generate('What is the capital of France?', max_tokens => 1)"),
        lambda: {NEW: bench.together(bench.generate)},
        lambda: {WARM: bench.warm()},
        lambda: {MANY: bench.many()},
        lambda: {INSERTED: bench.rows_a_second()},
    ]
    figures: dict[str, dict[str, list[float]]] = {}
    loads = []
    for _ in range(rounds):
        for mode in MODES:
            bench.choose(mode)
            for measure in measures:
                for name, value in measure().items():
                    figures.setdefault(name, {}).setdefault(mode, []).append(value)
        figures[NEW].setdefault("alone", []).append(bench.together(bench.ask_engine))
        loads.append(os.getloadavg()[0])
    return figures, loads


def table(figures: dict[str, dict[str, list[float]]], connections: int) -> list[str]:
    lines = [
        "| | embedded | served | served : embedded | goal | engine without PostgreSQL |",
        "|---|---|---|---|---|---|",
    ]
    for name, sides in figures.items():
        ours, alone = sides["served"], sides.get("alone")
        beside = f"{statistics.median(alone):.1f} (served : this {ratio(ours, alone):.2f})" if alone else ""
        count = f"{connections} " if name in (NEW, WARM, MANY) else ""
        lines.append(
            f"| {count}{name} | {statistics.median(sides['embedded']):.1f} | {statistics.median(ours):.1f} "
            f"| {ratio(ours, sides['embedded']):.2f} | {GOALS.get(name, '')} | {beside} |"
        )
    return lines


def report(bench: Bench, rounds: int, crowd: int, threads: int) -> str:
    figures, loads = measured(bench, rounds)
    warm, many = (figures[name]["embedded"] for name in (WARM, MANY))
    bench.choose("served")
    failed, slowest, whole = bench.crowd(crowd)
    return "\n".join(
        [
            *table(figures, bench.connections),
            "",
            f"- Embedded, {bench.connections} connections that used the model before make {ratio(warm, many):.2f} of "
            "`llm_generate_many`'s tokens/s (goal >= 0.9).",
            f"- Served, {crowd} new connections at once, {CROWD_TOKENS} tokens each: {failed} failed (goal 0), "
            f"the slowest took {slowest:.1f} s, all {whole:.1f} s.",
            f"- {rounds} rounds, {os.cpu_count()} processors, {threads} threads for each engine, load {min(loads):.1f} "
            f"to {max(loads):.1f}.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--crowd", type=int, default=200, help="connections that ask at once, at the end")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each model's engine")
    parser.add_argument("--write", type=Path, help="put the table into this file, between its markers")
    options = parser.parse_args()
    dsn = os.environ["MINDFUL_DSN"]
    with psycopg.connect(dsn, autocommit=True) as db:
        arguments = ("--slots", str(options.connections), "--threads", str(options.threads))
        with running_engine(db, dsn, *arguments) as engine:
            bench = Bench(dsn, engine, options.connections)
            try:
                text = report(bench, options.rounds, options.crowd, options.threads)
            finally:
                bench.choose("embedded")
    print(text)
    if options.write:
        put(options.write, "engines", f"{text}\n")


if __name__ == "__main__":
    main()
