"""Clients of every make, under one interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import AsyncExitStack
from typing import Any, cast

import psycopg
import pytest
from mindful_client import AsyncClient, Client
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from support import SCRIPTED_EMBEDDER
from support.command import Command

TARGETS = ("dsn", "connection", "pool")


class Threaded:
    """A Client that can be awaited as an AsyncClient can: each promise is tested of both by one test."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if name.endswith("stream"):
                return _threaded(method(*args, **kwargs))
            return asyncio.to_thread(method, *args, **kwargs)

        return call


async def _threaded(pieces: Generator[str, None, None]) -> AsyncGenerator[str, None]:
    def step() -> str | None:
        return next(pieces, None)

    try:
        while (piece := await asyncio.to_thread(step)) is not None:
            yield piece
    finally:
        await asyncio.to_thread(pieces.close)


@pytest.fixture
def quick(db: psycopg.Connection) -> None:
    """Let the scripted embedder be the default: what is tested here is not how well texts are found."""
    db.execute("select model_default_set(%s, force => true)", (SCRIPTED_EMBEDDER,))


@pytest.fixture
def mindful(dsn_of: Mapping[str, str], quick: None) -> Command:
    """The command line, as ana runs it."""
    return Command(dsn_of["ana"])


@pytest.fixture
def as_bob(dsn_of: Mapping[str, str], quick: None) -> Command:
    """The command line, as bob runs it."""
    return Command(dsn_of["bob"])


@pytest.fixture(params=[f"{kind} {target}" for kind in ("sync", "async") for target in TARGETS])
async def client(
    request: pytest.FixtureRequest, dsn_of: Mapping[str, str], quick: None
) -> AsyncIterator[AsyncClient]:
    """A client of ana's."""
    kind, target = request.param.split()
    async with AsyncExitStack() as opened:
        if kind == "async":
            yield await opened.enter_async_context(
                AsyncClient(await _async_target(target, dsn_of["ana"], opened))
            )
        else:
            made = opened.enter_context(Client(_target(target, dsn_of["ana"], opened)))
            yield cast(AsyncClient, Threaded(made))


def _target(target: str, dsn: str, opened: AsyncExitStack) -> str | psycopg.Connection | ConnectionPool:
    if target == "connection":
        return opened.enter_context(psycopg.connect(dsn))
    if target == "pool":
        return opened.enter_context(ConnectionPool(dsn, min_size=1, max_size=1, open=False))
    return dsn


async def _async_target(
    target: str, dsn: str, opened: AsyncExitStack
) -> str | psycopg.AsyncConnection | AsyncConnectionPool:
    if target == "connection":
        return await opened.enter_async_context(await psycopg.AsyncConnection.connect(dsn))
    if target == "pool":
        return await opened.enter_async_context(AsyncConnectionPool(dsn, min_size=1, max_size=1, open=False))
    return dsn
