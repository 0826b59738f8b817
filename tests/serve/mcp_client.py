"""MCP's own client, over each transport."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent
from mindful_serve.database import Database
from mindful_serve.mcp.server import make
from mindful_serve.mcp.tool import chosen
from mindful_serve.settings import Settings
from serve import mcp_forks
from serve.conftest import Service
from support import GENERATOR
from support.clock import Deadline

TENANT = "customer-7"
ERAS = {"legacy": "2025-11-25", "auto": "2026-07-28"}
BUSY = "select count(*) from pg_stat_activity where application_name = 'mindful_serve' and state <> 'idle'"
LONG = {
    "prompt": "Count.",
    "max_tokens": 1500,
    "model": GENERATOR,
    "json_schema": {"type": "array", "minItems": 500, "items": {"type": "string", "minLength": 3}},
}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"accept": "application/json, text/event-stream"}


@asynccontextmanager
async def over_http(service: Service, mode: str, tools: str = "", key: str = "") -> AsyncIterator[Client]:
    # The first request imports the SDK, for which a client that tries the newer protocol does not wait long.
    service.post("/mcp", PING, headers=ACCEPT)
    headers = {"authorization": f"Bearer {key or service.key}"}
    url = f"{service.url}/mcp" + (f"?tools={tools}" if tools else "")
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def in_memory(dsn: str, mode: str, tools: str = "core", tenant: str = TENANT) -> AsyncIterator[Client]:
    settings = Settings(dsn=dsn, tenant=tenant, connections=2)
    database = Database(settings)
    await database.open()
    try:
        async with Client(make(settings, database, chosen(tools.split(",")), {}), mode=mode) as client:
            yield client
    finally:
        await database.close()


def parameters(dsn: str, tools: str = "core", tenant: str = TENANT) -> StdioServerParameters:
    """Return how to start `mindful mcp`, by a process that has imported it."""
    environment = {**os.environ, "MINDFUL_DSN": dsn, "MINDFUL_TENANT": tenant}
    start = ["-I", "-S", "-c", mcp_forks.RELAY, mcp_forks.address()]
    return StdioServerParameters(
        command=sys.executable, args=[*start, "mcp", "--tools", tools], env=environment
    )


async def value(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def failure(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert result.structured_content is None
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def until(true: Callable[[], bool]) -> None:
    end = Deadline()
    while not true():
        assert not end.passed()
        await asyncio.sleep(0.02)
