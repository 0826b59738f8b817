"""One request and its response: its sender, its content, and the response of an error."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from mindful_client.errors import MindfulError
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from sse_starlette import EventSourceResponse
from sse_starlette.sse import SendTimeoutError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mindful_serve.database import Caller, Database, Pump
from mindful_serve.errors import ApiError, api_error
from mindful_serve.settings import Settings

T = TypeVar("T")
B = TypeVar("B", bound=BaseModel)
_LOG = logging.getLogger("mindful_serve")


class Exchange:
    """A request of a caller, and the database that answers it."""

    def __init__(self, request: Request, settings: Settings, database: Database, caller: Caller) -> None:
        self.request = request
        self.settings = settings
        self.database = database
        self.caller = caller

    def require(self, scope: str) -> None:
        """Raise unless the caller's key has a scope."""
        if scope not in self.caller.scopes:
            raise ApiError(
                403, f"this key does not have the scope {scope}", "permission_error", code="permission_denied"
            )

    def note(self, **values: Any) -> None:
        """Add to the audit's entry."""
        self.request.state.audit.update(values)

    async def whole(self, work: Awaitable[T]) -> T:
        """Wait for a result; if the client goes away, cancel what it waited for."""
        task = await self.database.run(work)
        return await self._unless_gone(task, task.cancel)

    async def stream(
        self,
        make: Callable[[], AsyncGenerator[T, None]],
        events: Callable[[AsyncIterator[T]], AsyncIterator[dict[str, str]]],
    ) -> Response:
        """Answer by events; an error before the first item is a response of its own."""
        pump = self.database.pump(make)
        first = asyncio.ensure_future(pump.next())
        try:
            item = await self._unless_gone(first, pump.stop)
        except StopAsyncIteration:
            item = None

        async def body() -> AsyncIterator[dict[str, str]]:
            try:
                async for event in events(_items(item, pump)):
                    yield event
            except (ApiError, MindfulError) as error:
                shown = error if isinstance(error, ApiError) else api_error(error)
                self.note(status=shown.status)  # the client got 200 before the first event
                yield data(shown.body)

        return _Events(pump, body(), sep="\n", ping=15, send_timeout=self.settings.read_s)

    async def _unless_gone(self, task: asyncio.Future[T], stop: Callable[[], object]) -> T:
        gone = asyncio.ensure_future(_gone(self.request))
        try:
            both: list[asyncio.Future[Any]] = [task, gone]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientDisconnect
            return task.result()
        finally:
            gone.cancel()
            if not task.done():
                stop()
                task.cancel()


class _Events(EventSourceResponse):
    """Events that are drawn from a stream, which ends with them, even where none was sent."""

    def __init__(self, pump: Pump[Any], content: AsyncIterator[dict[str, str]], **options: Any) -> None:
        super().__init__(content, **options)
        self._pump = pump

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; a client that does not read them is disconnected."""
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            scope["state"]["abort"]()
            await _gone(Request(scope, receive))
        finally:
            self._pump.stop()


Handler = Callable[[Exchange, B], Coroutine[Any, Any, Response]]


def data(value: Any) -> dict[str, str]:
    """Return an event of JSON."""
    return {"data": json.dumps(value, ensure_ascii=False, separators=(",", ":"))}


async def body_of(request: Request, model: type[B], settings: Settings) -> B:
    """Read and check a request's body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "the content type must be application/json")
    return checked(model, _parsed(await read(request, settings)))


def checked(model: type[B], value: Any) -> B:
    """Check a body's members; the error names the first that is wrong."""
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object")
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        first = _first(error.errors(include_url=False, include_input=False))
        param = ".".join(str(part) for part in first["loc"] if _is_member(part)) or None
        if first["type"] == "extra_forbidden":
            message = f"unrecognized or unsupported request argument supplied: {param}"
            raise ApiError(400, message, code="unsupported_parameter", param=param) from None
        message = first["msg"].removeprefix("Value error, ")
        raise ApiError(400, f"{param or 'body'}: {message}", param=param) from None


def _first(found: list[ErrorDetails]) -> ErrorDetails:
    """Return the first error; of a member that takes several types, that of the type which was given."""
    same = [one for one in found if one["loc"][:1] == found[0]["loc"][:1]]
    return next((one for one in same if not one["type"].endswith("_type")), found[0])


def _is_member(part: int | str) -> bool:
    """Tell a member or an index from the name of a type, which stands in the place of an error too."""
    return isinstance(part, int) or (part.isidentifier() and part.islower())


def with_param(error: MindfulError, model: type[BaseModel]) -> ApiError:
    """Return an error of the database with the member of the body that its message begins with."""
    refusal = api_error(error)
    named = error.message.partition(" ")[0]
    argument = named.partition("[")[0].partition(".")[0]
    member = getattr(model, "ARGUMENTS", {}).get(argument, argument)
    if refusal.status == 400 and member.partition(".")[0] in model.model_fields:
        body = refusal.body["error"]
        body["param"] = member + named.removeprefix(argument)
        body["message"] = body["message"].replace(named, body["param"], 1)
    return refusal


def number(text: str, param: str) -> int:
    """Return an id or a count that an address or a form names. Error 400: it is not a number."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ApiError(400, f"{param} is not a number", param=param)
    return int(text)


async def read(request: Request, settings: Settings) -> bytes:
    """Read a body, which may be neither large nor slow."""
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > settings.most_bytes:
        raise _too_large(settings)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.read_s):
            async for part in request.stream():
                size += len(part)
                if size > settings.most_bytes:
                    raise _too_large(settings)
                parts.append(part)
    except TimeoutError:
        raise ApiError(
            408,
            "the request's body came too slowly",
            headers={"x-should-retry": "false", "connection": "close"},
        ) from None
    return b"".join(parts)


def _too_large(settings: Settings) -> ApiError:
    message = f"the body has more than {settings.most_bytes} bytes"
    return ApiError(413, message, code="request_too_large", headers={"connection": "close"})


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not JSON in UTF-8, or it is nested too deeply") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _items(first: T | None, pump: Pump[T]) -> AsyncIterator[T]:
    if first is None:
        return
    yield first
    while True:
        try:
            item = await pump.next()
        except StopAsyncIteration:
            return
        yield item


def error_response(error: Exception) -> Response:
    """Return the response of what a handler raised."""
    if isinstance(error, MindfulError):
        return error_response(api_error(error))
    if isinstance(error, ApiError):
        return error.response()
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    _LOG.error("a request failed", exc_info=error)
    return ApiError(500, "the service failed; its log says why", "server_error").response()
