"""The application: routes, and what all requests pass."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit

from mindful_client.errors import MindfulError
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mindful_serve import audit, chat, memory, models, responses, status, stored, text, vectors
from mindful_serve.database import Caller, Database
from mindful_serve.desk.routes import routes as desk_routes
from mindful_serve.errors import ApiError
from mindful_serve.exchange import Exchange, Handler, body_of, error_response, with_param
from mindful_serve.mcp.http import Mcp
from mindful_serve.requests import (
    ChatRequest,
    ConversationRequest,
    EmbeddingRequest,
    RerankRequest,
    ResponseRequest,
    TextRequest,
)
from mindful_serve.settings import Settings, is_loopback

B = TypeVar("B", bound=BaseModel)
Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
_AUDIT = logging.getLogger("mindful_serve.audit")
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip")


def application(settings: Settings) -> Starlette:
    """Make the service."""
    database = Database(settings)
    mcp = Mcp(settings, database, functools.partial(_caller, database))

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await database.open()
        try:
            yield
        finally:
            await mcp.close()
            await database.close()

    def post(path: str, handler: Handler[B], model: type[B]) -> Route:
        return Route(path, _posted(settings, database, handler, model), methods=["POST"])

    def get(
        path: str, handler: Callable[[Exchange], Coroutine[Any, Any, Response]], method: str = "GET"
    ) -> Route:
        return Route(path, _got(settings, database, handler), methods=[method])

    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
    )
    app = Starlette(
        routes=[
            get("/v1/models", models.models),
            get("/v1/models/{name:path}", models.model),
            post("/v1/chat/completions", chat.chat, ChatRequest),
            post("/v1/completions", text.complete, TextRequest),
            post("/v1/embeddings", vectors.embed, EmbeddingRequest),
            post("/v1/rerank", vectors.rerank, RerankRequest),
            post("/v1/responses", responses.respond, ResponseRequest),
            get("/v1/responses/{id}", stored.response),
            get("/v1/responses/{id}", stored.response_delete, "DELETE"),
            get("/v1/responses/{id}/input_items", stored.input_items),
            post("/v1/conversations", memory.converse, ConversationRequest),
            get("/v1/conversations/{id}", stored.conversation),
            get("/v1/conversations/{id}", stored.conversation_delete, "DELETE"),
            get("/v1/conversations/{id}/items", stored.items),
            Route("/mcp", mcp),
            Route("/health", _guarded(status.health)),
            Route("/ready", _guarded(status.ready)),
            Route("/metrics", _guarded(status.metrics)),
            *desk_routes(settings, database),
        ],
        middleware=[Middleware(Gate, settings), *([cors] if settings.origins else [])],
        exception_handlers={HTTPException: _refused},
        lifespan=lifespan,
    )
    app.state.database, app.state.metrics = database, status.Metrics()
    return app


class Gate:
    """Passes requests on, and writes what became of each; what it said only with `--audit-contents`, redacted."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._log = audit.Log(_AUDIT.info)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        started, entry = time.perf_counter(), {"id": uuid.uuid4().hex, "status": 499}
        scope.setdefault("state", {})["audit"] = entry
        contents = audit.Contents.of(scope["path"]) if self._settings.audits_contents else None

        async def read() -> Message:
            message = await receive()
            if contents is not None:
                contents.take(message)
            return message

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry["status"] = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", str(entry["id"]).encode())]
            elif contents is not None:
                contents.take(message)
            await send(message)

        figures: status.Metrics = scope["app"].state.metrics
        figures.running += 1
        try:
            refusal = self._refusal(request)
            await (refusal.response() if refusal else self._app)(scope, read, marked)
        finally:
            figures.running -= 1
            self._record(scope, figures, entry, time.perf_counter() - started, contents)

    def _refusal(self, request: Request) -> ApiError | None:
        """Without keys, answer only programs of this machine: requests of web pages and through proxies are refused."""
        if self._settings.needs_key:
            return None
        host = _host_of(request.headers.get("host", ""))
        forwarded = any(name in request.headers for name in _FORWARDED)
        if not forwarded and (host == "" or is_loopback(host) or host == self._settings.host):
            return None
        message = "without keys the service answers programs of this machine only; start it with --keys"
        return ApiError(403, message, "permission_error", code="permission_denied")

    def _record(
        self,
        scope: Scope,
        figures: status.Metrics,
        entry: dict[str, Any],
        seconds: float,
        contents: audit.Contents | None,
    ) -> None:
        route = scope.get("route")
        path = route.path if isinstance(route, Route) else "other"
        figures.add("requests_total", 1, path=path, status=entry["status"])
        figures.add("request_seconds_total", seconds, path=path)
        usage = entry.pop("usage", None) or {}
        cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        counts = {
            "prompt": usage.get("prompt_tokens", 0),
            "cached": cached,
            "completion": usage.get("completion_tokens", 0),
        }
        for kind, count in counts.items():
            figures.add("tokens_total", count, kind=kind)
        written = entry | {"method": scope["method"], "path": path, "ms": round(seconds * 1000, 1)}
        self._log.add(written | {"tokens": counts}, contents)


def _host_of(header: str) -> str:
    """Return the name or address in a Host header; - where it is not one."""
    try:
        parts = urlsplit(f"//{header}")
        return "-" if parts.port == 0 else parts.hostname or ""
    except ValueError:
        return "-"


def _posted(settings: Settings, database: Database, handler: Handler[B], model: type[B]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        exchange = await _exchange(request, settings, database)
        body = await body_of(request, model, settings)
        exchange.note(model=getattr(body, "model", None), stream=getattr(body, "stream", False))
        try:
            return await handler(exchange, body)
        except MindfulError as error:
            raise with_param(error, model) from None

    return _guarded(endpoint)


def _got(
    settings: Settings, database: Database, handler: Callable[[Exchange], Coroutine[Any, Any, Response]]
) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await handler(await _exchange(request, settings, database))

    return _guarded(endpoint)


async def _exchange(request: Request, settings: Settings, database: Database) -> Exchange:
    return Exchange(request, settings, database, await _caller(database, request))


async def _caller(database: Database, request: Request) -> Caller:
    """Return whom a request's key speaks for."""
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    shown = key.strip() if kind.lower() == "bearer" else ""
    caller = await database.caller(shown or None)
    request.state.audit.update(tenant=caller.tenant, key=caller.key_id)
    return caller


def _guarded(endpoint: Endpoint) -> Endpoint:
    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            return error_response(error)

    return guarded


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "unknown_url" if error.status_code == 404 else None
    headers = dict(error.headers or {})
    return ApiError(error.status_code, error.detail.lower(), code=code, headers=headers).response()
