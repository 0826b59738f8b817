"""MCP at /mcp: a POST is a request, and the service remembers nothing between two of them."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from mindful_serve.database import Caller, Database
from mindful_serve.errors import ApiError
from mindful_serve.exchange import error_response, read
from mindful_serve.settings import Settings

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

Authenticate = Callable[[Request], Awaitable[Caller]]
_SESSION = "mcp-session-id"


class Mcp:
    """Answers at /mcp. The SDK is imported at the first request: it takes a second and 30 MB."""

    def __init__(self, settings: Settings, database: Database, authenticate: Authenticate) -> None:
        self._settings = settings
        self._database = database
        self._authenticate = authenticate
        self._running: dict[tuple[str | None, str, Any], asyncio.Task[Any]] = {}
        self._starting: asyncio.Task[StreamableHTTPSessionManager] | None = None
        self._held: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            self._check_origin(request)
            if request.method != "POST":
                headers = {"allow": "POST"}
                raise ApiError(405, "the service sends nothing unasked: use POST", headers=headers)
            caller = await self._authenticate(request)
            content = await read(request, self._settings)
        except Exception as error:
            await error_response(error)(scope, receive, send)
            return
        if self._cancel(request, caller, content):
            await Response(status_code=202)(scope, receive, send)
            return
        request.state.caller = caller
        manager = await self._manager()
        await manager.handle_request(scope, _replayed(content, receive), _named(request, send))

    async def close(self) -> None:
        """End what runs."""
        if self._held is not None:
            self._held.cancel()
            with suppress(asyncio.CancelledError):
                await self._held

    def _check_origin(self, request: Request) -> None:
        """Refuse pages of the web that the service was not told of: a browser sends their origin."""
        origin = request.headers.get("origin")
        own = urlsplit(origin or "").netloc == request.headers.get("host")
        if origin is not None and not own and origin not in self._settings.origins:
            raise ApiError(
                403,
                "pages of this origin may not call the service; start it with --origin",
                "permission_error",
                code="permission_denied",
            )

    def _cancel(self, request: Request, caller: Caller, content: bytes) -> bool:
        """Cancel what a client names, and tell whether it named anything.

        Clients of 2025 cancel by a request of its own. A session's id, which only its client knows, keeps clients of
        one key from cancelling each other's calls.
        """
        session = request.headers.get(_SESSION)
        if session is None or b"notifications/cancelled" not in content:
            return False
        try:
            message = json.loads(content)
            if message["method"] != "notifications/cancelled":
                return False
            key = (caller.key_id, session, message["params"]["requestId"])
            if task := self._running.get(key):
                task.cancel()
        except (ValueError, RecursionError, TypeError, KeyError):
            return False
        return True

    async def _manager(self) -> StreamableHTTPSessionManager:
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> StreamableHTTPSessionManager:
        manager = await asyncio.to_thread(self._made)
        started = asyncio.Event()

        async def hold() -> None:
            async with manager.run():
                started.set()
                await asyncio.Event().wait()

        self._held = asyncio.create_task(hold())
        await started.wait()
        return manager

    def _made(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from mindful_serve.mcp.server import make
        from mindful_serve.mcp.tool import chosen

        server = make(self._settings, self._database, chosen(["core"]), self._running)
        return StreamableHTTPSessionManager(
            server, stateless=True, max_request_body_size=self._settings.most_bytes
        )


def _replayed(content: bytes, receive: Receive) -> Receive:
    """Return what receives a body that was read already, and then what follows."""
    parts = [{"type": "http.request", "body": content, "more_body": False}]

    async def replayed() -> Message:
        return parts.pop() if parts else await receive()

    return replayed


def _named(request: Request, send: Send) -> Send:
    """Give clients of 2025 a session's id: the service keeps none, and uses it for what the client cancels."""
    if any(name in request.headers for name in (_SESSION, "mcp-protocol-version")):
        return send

    async def named(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (_SESSION.encode(), uuid.uuid4().hex.encode())]
        await send(message)

    return named
