"""MCP over standard input and output, for clients that start the server themselves."""

from __future__ import annotations

import asyncio
import logging
import sys

from mcp.server.stdio import stdio_server

from mindful_serve.database import Database
from mindful_serve.mcp.server import make
from mindful_serve.mcp.tool import chosen
from mindful_serve.settings import Settings


def run(settings: Settings, tools: str) -> None:
    """Serve until the client closes standard input."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    for name in ("psycopg.pool", "mcp"):
        logging.getLogger(name).setLevel(logging.ERROR)
    asyncio.run(_serve(settings, chosen(tools.split(","))))


async def _serve(settings: Settings, offered: frozenset[str]) -> None:
    database = Database(settings)
    await database.open()
    try:
        server = make(settings, database, offered, {})
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await database.close()
