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

_BODY: dict[str, Any] = {
    "model": "default",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 8,
    "stream": True,
}


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
    options = parser.parse_args()
    dsn = os.environ["MINDFUL_DSN"]
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
