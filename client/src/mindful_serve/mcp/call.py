"""One request of an MCP client: whom it acts for, and how it waits for the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import RequestId
from mindful_client import AsyncClient
from mindful_client.errors import MindfulError

from mindful_serve.database import Caller, Database
from mindful_serve.errors import ApiError, api_error
from mindful_serve.settings import Settings

T = TypeVar("T")
_BEAT_S = 1.0
"""Seconds between two notes of progress: clients prolong their time limit at each."""
_CANCELLED = -32800
"""The code that the SDK answers a cancelled request with."""
RunningKey = tuple[str | None, str, RequestId]
"""A key's id, the client's session and its request: what notifications/cancelled names over HTTP."""


class CallError(Exception):
    """A failure that the client sees."""

    def __init__(self, message: str, *, sqlstate: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate
        self.hint = hint

    @property
    def text(self) -> str:
        """The message, with its hint and SQLSTATE on lines of their own."""
        lines = [self.message]
        lines += [f"Hint: {self.hint}"] if self.hint else []
        lines += [f"SQLSTATE: {self.sqlstate}"] if self.sqlstate else []
        return "\n".join(lines)


@dataclass(frozen=True)
class Call:
    """A request of a caller, and the database that answers it."""

    context: ServerRequestContext[Any]
    settings: Settings
    database: Database
    caller: Caller
    running: dict[RunningKey, asyncio.Task[Any]]
    """What runs for clients whose cancel is a request of its own."""

    @property
    def client(self) -> AsyncClient:
        """Return a client whose calls run models."""
        return self.database.client(self.caller.tenant)

    @property
    def quick(self) -> AsyncClient:
        """Return a client whose calls run no model."""
        return self.database.client(self.caller.tenant, short=True)

    @property
    def wants_progress(self) -> bool:
        """Tell whether the client asked for progress."""
        return bool(self.context.meta and self.context.meta.get("progress_token") is not None)

    def require(self, scope: str) -> None:
        """Raise unless the caller's key has a scope."""
        if scope not in self.caller.scopes:
            raise CallError(
                f"this key does not have the scope {scope}",
                sqlstate="42501",
                hint=f"Make a key with `mindful key create NAME --for TENANT --scope {scope}`.",
            )

    async def admit(self, scope: str) -> None:
        """Raise unless the key has a scope, or, over standard input, unless policies hold for the role."""
        self.require(scope)
        if self.context.request is None:
            await self.brief(self.database.caller(None))

    async def rows(
        self, sql: LiteralString, parameters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Run a statement that runs no model."""
        return await self.brief(self.database.rows(self.caller.tenant, sql, parameters))

    async def brief(self, work: Awaitable[T]) -> T:
        """Wait for a result of the quick client."""
        return await self.whole(work, short=True)

    async def whole(self, work: Awaitable[T], *, beats: bool = True, short: bool = False) -> T:
        """Wait for a result; if the client cancels, cancel its statement."""
        task = await self.database.run(work, short=short)
        with _Registered(self, task):
            try:
                seconds = 0.0
                while not task.done():
                    await asyncio.wait([task], timeout=_BEAT_S)
                    seconds += _BEAT_S
                    if beats and not task.done():
                        await self.progress(seconds, "waiting for the database")
                return task.result()
            except asyncio.CancelledError:
                if task.cancelled():
                    raise MCPError(_CANCELLED, "Request cancelled") from None
                raise
            except (ApiError, MindfulError) as error:
                raise failure(error) from error
            finally:
                task.cancel()

    async def progress(self, progress: float, message: str) -> None:
        """Report progress, if the client asked for it; a client that does not read it loses its call."""
        try:
            async with asyncio.timeout(self.settings.read_s):
                await self.context.session.report_progress(progress, message=message)
        except TimeoutError:
            raise ApiError(408, "the client does not read its progress") from None

    async def streamed(
        self, make: Callable[[], AsyncGenerator[T, None]], on_item: Callable[[T], Awaitable[None]]
    ) -> T:
        """Pass all items of a stream but the last to a function, and return the last."""

        async def drawn() -> T:
            items, last = make(), None
            try:
                async for item in items:
                    if last is not None:
                        await on_item(last)
                    last = item
            finally:
                await items.aclose()
            assert last is not None
            return last

        return await self.whole(drawn(), beats=False)


class _Registered:
    """While it is open, the client can cancel a task by notifications/cancelled."""

    def __init__(self, call: Call, task: asyncio.Task[Any]) -> None:
        self._running = call.running
        self._task = task
        self._key = running_key(call)

    def __enter__(self) -> None:
        if self._key:
            self._running[self._key] = self._task

    def __exit__(self, *_: object) -> None:
        if self._key and self._running.get(self._key) is self._task:
            del self._running[self._key]


def running_key(call: Call) -> RunningKey | None:
    """Return what a client cancels a request by, if its transport cannot."""
    request, request_id = call.context.request, call.context.request_id
    session = request.headers.get("mcp-session-id") if request is not None else None
    if session is None or request_id is None:
        return None
    return (call.caller.key_id, session, request_id)


def failure(error: ApiError | MindfulError) -> CallError:
    """Return what the client sees of an error; what no caller can cause keeps its text."""
    if isinstance(error, ApiError):
        return CallError(str(error))
    if error.sqlstate is None or api_error(error).status == 500:
        return CallError(str(api_error(error)), sqlstate=error.sqlstate)
    return CallError(error.message, sqlstate=error.sqlstate, hint=error.hint)
