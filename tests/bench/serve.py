"""Measure what `mindful serve` adds to SQL, and many streams at once. Run by `make bench-serve`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from psycopg.conninfo import make_conninfo

_BODY: dict[str, Any] = {
    "model": "default",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 8,
    "stream": True,
}

_THINGS = (
    "the market", "the harbor", "the old library", "the clock tower", "the bakery", "the museum", "the bridge",
    "the station", "the theater", "the park", "the school", "the castle", "the fountain", "the town hall", "the river",
    "the hospital", "the lighthouse", "the post office", "the cinema", "the garden",
)  # fmt: skip
_QUESTION = "What should a visitor with two children know about {} before going there on a rainy Sunday?"
_REPLY = 40


@asynccontextmanager
async def service(dsn: str, connections: int) -> AsyncIterator[tuple[httpx2.AsyncClient, int]]:
    """Run a service, and give a client and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "mindful_client",
        "serve",
        "--port",
        str(port),
        "--connections",
        str(connections),
    ]
    with subprocess.Popen(
        command, env={**os.environ, "MINDFUL_DSN": dsn}, stderr=subprocess.DEVNULL
    ) as process:
        try:
            limits = httpx2.Limits(max_connections=None)
            async with httpx2.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=600, limits=limits
            ) as client:
                while True:
                    try:
                        await client.get("/health")
                        break
                    except httpx2.TransportError:
                        await asyncio.sleep(0.1)
                yield client, process.pid
        finally:
            process.terminate()


def ordinary(dsn: str) -> str:
    """Return the connection string of a role that row-level security holds for: the service accepts no other."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.execute("select to_regrole('bench_serve')").fetchone() == (None,):
            connection.execute("create role bench_serve login in role mindful_user")
    return make_conninfo(dsn, user="bench_serve")


def resident_mb(process: int) -> float:
    """Return the memory of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def first_token_ms(client: httpx2.AsyncClient) -> float:
    """Return the time to the first text of a stream."""
    started, found = time.perf_counter(), 0.0
    async with client.stream("POST", "/v1/chat/completions", json=_BODY) as answer:
        async for line in answer.aiter_lines():
            if not found and '"content":' in line:
                found = (time.perf_counter() - started) * 1000
    return found


def sql_first_token_ms(connection: psycopg.Connection) -> float:
    """Return the time to the first row of the same call in SQL."""
    started = time.perf_counter()
    with connection.transaction(), connection.cursor("piece") as cursor:
        cursor.itersize = 1
        cursor.execute(
            "select llm_complete_stream(%s::jsonb, max_tokens => 8)", (json.dumps(_BODY["messages"]),)
        )
        found = 0.0
        for _ in cursor:
            found = found or (time.perf_counter() - started) * 1000
    return found


async def late_turn_ms(client: httpx2.AsyncClient, talk: int) -> tuple[float, float]:
    """Return the times to the first text of turn 2 and of the last turn of a client that resends all of its talk."""
    messages: list[dict[str, str]] = [{"role": "system", "content": f"You are guide {talk} of a town."}]
    taken: list[float] = []
    for thing in _THINGS:
        messages.append({"role": "user", "content": _QUESTION.format(thing)})
        body = _BODY | {"messages": messages, "max_tokens": _REPLY}
        started, first, said = time.perf_counter(), 0.0, ""
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if '"content":' in line:
                    first = first or (time.perf_counter() - started) * 1000
                    said += json.loads(line[5:])["choices"][0]["delta"].get("content") or ""
        taken.append(first)
        messages.append({"role": "assistant", "content": said})
    return taken[1], taken[-1]


async def one_of_many(client: httpx2.AsyncClient) -> tuple[str, float]:
    """Stream one answer, and return how it ended and its time to the first text."""
    started, ended, first = time.perf_counter(), "cut", 0.0
    async with client.stream("POST", "/v1/chat/completions", json=_BODY) as answer:
        if answer.status_code != 200:
            return f"{answer.status_code}, retry-after {answer.headers.get('retry-after')}", 0.0
        async for line in answer.aiter_lines():
            first = first or time.perf_counter() - started
            if line == "data: [DONE]":
                ended = "complete"
    return ended, first


async def main() -> None:
    """Measure, and print figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--talks", type=int, default=9, help="conversations that are resent turn by turn")
    options = parser.parse_args()
    dsn = ordinary(os.environ["MINDFUL_DSN"])
    async with service(dsn, options.connections) as (client, process):
        with psycopg.connect(dsn, autocommit=True) as connection:
            for _ in range(3):
                sql_first_token_ms(connection)
                await first_token_ms(client)
            pairs = [
                (sql_first_token_ms(connection), await first_token_ms(client)) for _ in range(options.rounds)
            ]
        sql, http = (statistics.median(values) for values in zip(*pairs, strict=True))
        print(
            f"first token, median of {options.rounds}: SQL {sql:.1f} ms, HTTP {http:.1f} ms, +{http - sql:.1f} ms"
        )
        turns = [await late_turn_ms(client, talk) for talk in range(options.talks)]
        early, late = (statistics.median(values) for values in zip(*turns, strict=True))
        ratios = ", ".join(f"{b / a:.2f}" for a, b in turns)
        print(f"first token of a resent conversation: turn 2 {early:.0f} ms, ", end="")
        print(f"turn {len(_THINGS)} {late:.0f} ms, x {late / early:.2f} ({ratios})")
        started, peak = time.perf_counter(), 0.0

        async def watch() -> None:
            nonlocal peak
            while True:
                peak = max(peak, resident_mb(process))
                await asyncio.sleep(0.1)

        watcher = asyncio.create_task(watch())
        results = await asyncio.gather(*(one_of_many(client) for _ in range(options.streams)))
        watcher.cancel()
        print(f"{options.streams} streams at once, {options.connections} connections: ", end="")
        print(f"{dict(Counter(ended for ended, _ in results))} in {time.perf_counter() - started:.1f} s")
        print(f"memory of the service at most {peak:.0f} MB")


if __name__ == "__main__":
    asyncio.run(main())
