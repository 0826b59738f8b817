"""The service's connections: a few that run models, and one or two for what takes a moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, TypeVar
from uuid import UUID

import psycopg
from mindful_client import AsyncClient, AsyncPartitions
from mindful_client.errors import translated
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from mindful_serve.errors import ApiError, busy, unavailable
from mindful_serve.settings import Settings

T = TypeVar("T")
_SHORT_S = 3.0
"""Seconds after which the database counts as down."""
_IDLE_S = 300.0
"""Seconds after which a connection that nothing uses is closed, and its model's memory given back."""
_ENDED: Any = object()
# The rows of other tenants are hidden from the caller by policies alone.
_ROLE: LiteralString = """
    select r.rolname as role, r.rolsuper or r.rolbypassrls as bypasses
    from pg_catalog.pg_roles r
    where r.rolname = current_user
"""
_KEY: LiteralString = """
    select k.tenant, k.id::text, k.scopes, k.wait_s, r.rolname as role, r.rolsuper or r.rolbypassrls as bypasses
    from mindful.key_use(%(key)s) k, pg_catalog.pg_roles r
    where r.rolname = current_user
"""


@dataclass(frozen=True)
class Caller:
    """Who sends a request."""

    tenant: str | None
    key_id: str | None = None
    scopes: frozenset[str] = frozenset({"chat", "embed", "memory"})


class Database:
    """Two pools, and the tasks that use them: a task is cancelled as a whole, and its statement with it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._short = self._pool(2, _SHORT_S)
        self._long = self._pool(settings.connections, settings.queue_s)
        self._reads = (
            self._pool(settings.connections, settings.queue_s, settings.read_dsn)
            if settings.read_dsn
            else self._long
        )
        self._pools = {self._short, self._long, self._reads}
        self._partitions = AsyncPartitions(settings.stream_dsn)
        self._tasks: set[asyncio.Task[Any]] = set()
        self.answering: set[tuple[str | None, UUID]] = set()
        """Tenants' sessions in which a response is being made."""

    async def open(self) -> None:
        """Start the pools; the database need not be there yet."""
        for pool in self._pools:
            await pool.open()

    async def close(self) -> None:
        """Cancel what runs, and close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pool in self._pools:
            await pool.close()
        await self._partitions.close()

    @property
    def figures(self) -> Mapping[str, int]:
        """Connections that run models: how many there are, how many wait for work, and how many requests for one."""
        stats = self._long.get_stats()
        return {key: stats.get(key, 0) for key in ("pool_size", "pool_available", "requests_waiting")}

    async def caller(self, key: str | None) -> Caller:
        """Return whom a key speaks for; without keys, the tenant that the service was started for."""
        if not self._settings.needs_key:
            (found,) = await self.rows(None, _ROLE)
            _check_role(found)
            return Caller(self._settings.tenant)
        if key is None:
            raise ApiError(
                401,
                "a key is missing: send the header Authorization: Bearer KEY",
                "authentication_error",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        (found,) = await self.rows(None, _KEY, {"key": key})
        _check_role(found)
        if found["wait_s"]:
            raise busy("the requests of this key are spent for this minute", found["wait_s"])
        return Caller(found["tenant"], found["id"], frozenset(found["scopes"]))

    async def rows(
        self, tenant: str | None, sql: LiteralString, parameters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Run a statement that takes a moment, as a tenant."""
        return await self._rows(self._short, tenant, sql, parameters)

    async def compute(
        self, tenant: str | None, sql: LiteralString, parameters: Mapping[str, Any], *, reads: bool = False
    ) -> list[dict[str, Any]]:
        """Run a statement that runs a model, as a tenant; with reads true, one that a standby answers too."""
        return await self._rows(self._reads if reads else self._long, tenant, sql, parameters)

    def client(self, tenant: str | None, *, short: bool = False) -> AsyncClient:
        """Return a client as a tenant; with short true, for calls that take a moment and run no model."""
        return AsyncClient(
            self._short if short else self._long,
            tenant=tenant,
            reads=None if short else self._reads,
            partitions=self._partitions,
        )

    async def run(self, work: Awaitable[T], *, short: bool = False) -> asyncio.Task[T]:
        """Start work in a task of its own, which is not part of the request's."""

        async def guarded() -> T:
            async with self._errors(self._short if short else None):
                return await work

        return self._started(guarded())

    def pump(self, make: Callable[[], AsyncGenerator[T, None]]) -> Pump[T]:
        """Start to draw from a stream in a task of its own."""
        return Pump(self, make)

    def _started(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _rows(
        self,
        pool: AsyncConnectionPool[Any],
        tenant: str | None,
        sql: LiteralString,
        parameters: Mapping[str, Any] | None,
    ) -> list[dict[str, Any]]:
        async with self._errors(pool):
            with translated():
                async with pool.connection() as connection, connection.transaction():
                    if tenant is not None:
                        await connection.execute("select mindful.tenant_set(%s)", (tenant,), prepare=False)
                    async with connection.cursor(row_factory=dict_row) as cursor:
                        await cursor.execute(sql, parameters, prepare=False)
                        return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def _errors(self, pool: AsyncConnectionPool[Any] | None = None) -> AsyncIterator[None]:
        """Tell a database that is busy from one that is down."""
        try:
            async with asyncio.timeout(self._settings.request_s):
                yield
        except TimeoutError:
            raise ApiError(
                504,
                "the answer took too long",
                "server_error",
                code="timeout",
                headers={"x-should-retry": "false"},
            ) from None
        except Exception as error:
            if isinstance(error, PoolTimeout) or isinstance(error.__cause__, PoolTimeout):
                if pool is not self._short and self._long.get_stats().get("pool_size", 0):
                    raise busy("all connections of the service are in use") from None
                raise unavailable("the database cannot be reached") from None
            raise

    def _pool(
        self, size: int, wait_s: float, dsn: str | None = None
    ) -> AsyncConnectionPool[psycopg.AsyncConnection[Any]]:
        async def check(connection: psycopg.AsyncConnection[Any]) -> None:
            try:
                await AsyncConnectionPool.check_connection(connection)
            except psycopg.Error:
                # A restart breaks all connections, and the pool doubles its wait before each next one that it tries.
                # A task of its own, because the pool loses the connections of a check that is cancelled.
                await asyncio.wait([self._started(pool.check())], timeout=_SHORT_S)
                raise

        pool = AsyncConnectionPool(
            self._settings.dsn if dsn is None else dsn,
            min_size=0,
            max_size=size,
            timeout=wait_s,
            max_idle=_IDLE_S,
            reconnect_timeout=_SHORT_S,
            check=check,
            open=False,
            kwargs={"autocommit": True, "fallback_application_name": "mindful_serve", "connect_timeout": 5},
        )
        return pool


def _check_role(found: Mapping[str, Any]) -> None:
    if found["bypasses"]:
        raise unavailable(
            f"the service's role {found['role']} bypasses row-level security and would show the rows of all tenants: "
            "start it as another role, such as one of CREATE ROLE me LOGIN IN ROLE mindful_user"
        )


class Pump(Generic[T]):
    """A stream that is drawn from by a task, so that cancelling its reader cannot cut the clean-up short."""

    def __init__(self, database: Database, make: Callable[[], AsyncGenerator[T, None]]) -> None:
        self._items: asyncio.Queue[T | Exception] = asyncio.Queue(maxsize=4)
        self._task = database._started(self._draw(database, make))

    async def next(self) -> T:
        """Return the next item, or raise StopAsyncIteration or what the stream raised."""
        item = await self._items.get()
        if item is _ENDED:
            raise StopAsyncIteration
        if isinstance(item, Exception):
            raise item
        return item

    def stop(self) -> None:
        """Cancel the stream's statement, if it still runs."""
        self._task.cancel()

    async def _draw(self, database: Database, make: Callable[[], AsyncGenerator[T, None]]) -> None:
        try:
            async with database._errors():
                source = make()
                try:
                    async for item in source:
                        await self._items.put(item)
                finally:
                    await source.aclose()
            await self._items.put(_ENDED)
        except Exception as error:
            await self._items.put(error)
