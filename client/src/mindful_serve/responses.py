"""POST /v1/responses: kept in a session unless `store` is false."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

from mindful_client.types import CompletionPiece
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from mindful_serve import memory
from mindful_serve.chunks import MEMORY, usage_of
from mindful_serve.errors import ApiError
from mindful_serve.exchange import Exchange, data
from mindful_serve.requests import SAMPLING, NamedTool, ResponseRequest, given_of

_ID = "resp_"
# A stored response is named by its session and the turn of the message that it answers: a stream states the name in
# its first event, before the reply is a row.
_RESPONSE = """
    select s.session_id, s.system_prompt, max(m.turn) as turn,
        -- Later messages without a reply of a model do not count: they are of a request that failed.
        coalesce(min(m.turn) filter (where m.role = 'user' and m.turn > %(turn)s)
            > max(m.turn) filter (where m.metadata ? 'action'), true) as is_last
    from mindful.session s
    join mindful.memory m on m.tenant = s.tenant and m.session_id = s.session_id
    where s.session_id = %(session_id)s
    group by s.session_id, s.system_prompt
    having bool_or(m.role = 'user' and m.turn = %(turn)s)
        and bool_or(m.role in ('assistant', 'clarification') and m.turn > %(turn)s)
"""
_CONVERSATION = """
    select s.session_id, s.system_prompt, coalesce(max(m.turn), 0) as turn, true as is_last
    from mindful.session s
    left join mindful.memory m on m.tenant = s.tenant and m.session_id = s.session_id
    where s.session_id = %(session_id)s
    group by s.session_id, s.system_prompt
"""


# A long message is stored in parts, which are turns of their own.
_STORED = """
    select min(m.turn) as first, max(m.turn + coalesce((m.metadata ->> 'parts')::integer, 1) - 1) as last
    from mindful.memory m
    where m.session_id = %(session_id)s and m.id = any (%(ids)s::bigint[])
"""


async def respond(exchange: Exchange, body: ResponseRequest) -> Response:
    """Answer an input, in the session that it belongs to."""
    messages = _messages(body.input)
    if body.store:
        exchange.require("memory")
        _refuse(body, ("tools", "tool_choice", "metadata"))
        return await _kept(exchange, body, messages)
    exchange.require("chat")
    if body.model.startswith(MEMORY):
        raise ApiError(400, "store is false and the model remembers", param="store")
    _refuse(body, ("previous_response_id", "conversation"))
    if body.instructions is not None:
        messages.insert(0, {"role": "system", "content": body.instructions})
    return await _forgotten(exchange, body, messages)


async def _forgotten(exchange: Exchange, body: ResponseRequest, messages: list[dict[str, Any]]) -> Response:
    client = exchange.database.client(exchange.caller.tenant)
    arguments = _stateless_arguments(exchange, body)
    shown = Shown(body, f"{_ID}{uuid.uuid4().hex}")
    if body.stream:

        async def events(pieces: AsyncIterator[CompletionPiece]) -> AsyncIterator[dict[str, str]]:
            for event in shown.begin():
                yield event
            async for piece in pieces:
                for event in shown.piece(piece):
                    yield event
            exchange.note(usage=shown.usage)
            for event in shown.end():
                yield event

        return await exchange.stream(lambda: client.llm_complete_stream(messages, **arguments), events)
    (row,) = await exchange.whole(client.llm_complete(messages, **arguments))
    usage = usage_of([vars(row)])
    exchange.note(usage=usage)
    shown.take(row.text, row.tool_calls or [], row.finish_reason, usage)
    return JSONResponse(shown.response())


async def _kept(exchange: Exchange, body: ResponseRequest, messages: list[dict[str, Any]]) -> Response:
    told, question = _parted(messages)
    client = exchange.database.client(exchange.caller.tenant)
    arguments = memory.arguments_of(exchange, body, body.max_output_tokens)
    if not body.model.startswith(MEMORY):
        arguments["memories"] = 0
    place = _place(body)

    @asynccontextmanager
    async def begun() -> AsyncIterator[tuple[UUID, str]]:
        with _alone(exchange, place):
            session_id, turn = await _session(exchange, body, place)
            async with _begun(exchange, session_id, turn, body.instructions, told) as names:
                yield names

    if body.stream:
        events = _KeptEvents(exchange, body)

        async def made() -> AsyncGenerator[str | dict[str, Any], None]:
            async with begun() as (known, response_id):
                events.name(response_id)
                items = memory.streamed(
                    exchange.database, exchange.caller, client, [], question, arguments, known
                )
                async with aclosing(items):
                    async for item in items:
                        yield item

        return await exchange.stream(made, events.events)

    async def answered() -> tuple[str, Any]:
        async with begun() as (known, response_id):
            return response_id, await client.llm_chat_detail(question, session_id=known, **arguments)

    response_id, detail = await exchange.whole(answered())
    usage = usage_of([vars(detail)])
    exchange.note(usage=usage)
    shown = Shown(body, response_id, memory.told_of(vars(detail)))
    shown.take(detail.reply, [], detail.finish_reason, usage)
    return JSONResponse(shown.response())


@asynccontextmanager
async def _begun(
    exchange: Exchange,
    session_id: UUID | None,
    turn: int,
    instructions: str | None,
    told: list[dict[str, Any]],
) -> AsyncIterator[tuple[UUID, str]]:
    """Store the messages before a question, and give its session and the id of its response.

    If the question gets no reply, the messages are forgotten, and with them a session that begins here: no lock may be
    held while a model runs, so they cannot be stored with the reply.
    """
    tenant = exchange.caller.tenant
    client = exchange.database.client(tenant)
    is_new = session_id is None
    first, last = turn + 1, turn
    try:
        if session_id is None:
            prompt: dict[str, Any] = {} if instructions is None else {"system_prompt": instructions}
            session_id = await client.session_start(**prompt)
        if told:
            ids = await client.message_insert_many(session_id, told)
            (place,) = await exchange.database.rows(tenant, _STORED, {"session_id": session_id, "ids": ids})
            first, last = place["first"], place["last"]
        yield session_id, f"{_ID}{session_id.hex}_{last + 1}"
    except BaseException:
        if session_id is not None:
            await memory.undo(exchange.database, exchange.caller, session_id, is_new, first, last)
        raise


def _parted(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return the messages to store before the question, and the question."""
    *before, last = messages
    if last["role"] != "user" or not last["content"].strip():
        message = "the last item of input must be the user's message, and hold a text"
        raise ApiError(400, message, param="input")
    return [one for one in before if one["content"].strip()], last["content"]


@dataclass(frozen=True)
class _Place:
    """What a body continues: a response or a conversation."""

    param: str
    given: str
    sql: LiteralString
    parameters: dict[str, Any]


def _place(body: ResponseRequest) -> _Place | None:
    """Return what a body continues, None for a new session."""
    given, param = body.previous_response_id, "previous_response_id"
    if body.conversation is not None:
        if given is not None:
            raise ApiError(400, "previous_response_id and conversation are given", param="conversation")
        param = "conversation"
        given = body.conversation if isinstance(body.conversation, str) else body.conversation.id
    if given is None:
        return None
    parameters = conversation_of(given) if param == "conversation" else place_of(given)
    if parameters is None:
        raise _missing(param, given)
    return _Place(param, given, _CONVERSATION if param == "conversation" else _RESPONSE, parameters)


def _missing(param: str, given: str) -> ApiError:
    return ApiError(404, f"there is no {param} {given!r}", code="not_found", param=param)


@contextmanager
def _alone(exchange: Exchange, place: _Place | None) -> Iterator[None]:
    """Refuse a second answer in a session: both would have one id, which is that of the turn that comes next."""
    if place is None:
        yield
        return
    answering = exchange.database.answering
    key = (exchange.caller.tenant, place.parameters["session_id"])
    if key in answering:
        message = "another request is being answered in this conversation: send this one again later"
        raise ApiError(409, message, code="conversation_locked", param=place.param)
    answering.add(key)
    try:
        yield
    finally:
        answering.remove(key)


async def _session(
    exchange: Exchange, body: ResponseRequest, place: _Place | None
) -> tuple[UUID | None, int]:
    """Return the session that a body continues and its last turn, or None for a new one."""
    if place is None:
        return None, 0
    rows = await exchange.database.rows(exchange.caller.tenant, place.sql, place.parameters)
    if not rows:
        raise _missing(place.param, place.given)
    if not rows[0]["is_last"]:
        message = "the conversation went on after this response: give the id of its last one"
        raise ApiError(400, message, code="unsupported_value", param=place.param)
    if body.instructions not in (None, rows[0]["system_prompt"]):
        message = "the instructions of a conversation are those that it began with"
        raise ApiError(400, message, code="unsupported_value", param="instructions")
    return rows[0]["session_id"], rows[0]["turn"]


def place_of(response_id: str) -> dict[str, Any] | None:
    """Return the session of a stored response, and the turn of the message that it answers."""
    found = re.fullmatch(_ID + "([0-9a-f]{32})_([1-9][0-9]{0,8})", response_id, re.ASCII)
    return {"session_id": UUID(found[1]), "turn": int(found[2])} if found else None


def conversation_of(given: str) -> dict[str, Any] | None:
    """Return the session of a conversation."""
    found = re.fullmatch(memory.CONVERSATION + "([0-9a-f-]{32,36})", given, re.ASCII)
    try:
        return {"session_id": UUID(found[1])} if found else None
    except ValueError:
        return None


def _messages(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    messages: list[dict[str, Any]] = []
    for at, item in enumerate(given):
        kind = item.get("type", "message")
        if kind == "message":
            messages.append(
                {
                    "role": _role(at, item),
                    "content": memory.text_of(f"input[{at}].content", item.get("content")),
                }
            )
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif kind == "function_call_output":
            output = item.get("output")
            content = output if isinstance(output, str) else memory.text_of(f"input[{at}].output", output)
            messages.append({"role": "tool", "content": content, "tool_call_id": item.get("call_id")})
        else:
            raise ApiError(400, f"input[{at}].type is not supported", param=f"input[{at}].type")
    return messages


def _role(at: int, item: dict[str, Any]) -> str:
    role = item.get("role")
    if role not in ("system", "developer", "user", "assistant"):
        raise ApiError(400, f"input[{at}].role is not a role", param=f"input[{at}].role")
    return "system" if role == "developer" else str(role)


def _refuse(body: ResponseRequest, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(body, name) not in (None, [], {}, "auto", "none"):
            message = f"{name} is not supported with store {str(body.store).lower()}"
            raise ApiError(400, message, code="unsupported_parameter", param=name)
    if body.store and _form(body) is not None:
        raise ApiError(400, "text.format is not supported with store true", param="text.format")


def _form(body: ResponseRequest) -> dict[str, Any] | None:
    form = body.text.format if body.text is not None else None
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "object"}
    if form.schema_ is None:
        raise ApiError(400, "text.format.schema is missing", param="text.format.schema")
    return form.schema_


def _stateless_arguments(exchange: Exchange, body: ResponseRequest) -> dict[str, Any]:
    arguments: dict[str, Any] = {"model": exchange.settings.model(body.model), "max_tokens": -1}
    arguments |= given_of(body, SAMPLING)
    for name, value in (("max_tokens", body.max_output_tokens), ("json_schema", _form(body))):
        if value is not None:
            arguments[name] = value
    # Clients list tools of other kinds beside their functions, and do without them.
    tools = [tool for tool in body.tools or [] if tool.get("type") == "function"]
    if tools:
        arguments["tools"] = [
            {"type": "function", "function": {k: v for k, v in tool.items() if k not in ("type", "strict")}}
            for tool in tools
        ]
        choice = body.tool_choice
        if choice is not None:
            arguments["tool_choice"] = choice.name if isinstance(choice, NamedTool) else choice
    elif body.tool_choice not in (None, "auto", "none"):
        raise ApiError(400, "tool_choice is given without tools", param="tool_choice")
    return arguments


class Shown:
    """A response while it is made, as an object and as events."""

    def __init__(
        self,
        body: ResponseRequest,
        response_id: str,
        x_mindful: dict[str, Any] | None = None,
        created: int | None = None,
    ) -> None:
        self._body = body
        self.id = response_id
        self.x_mindful = x_mindful
        self._created = int(time.time()) if created is None else created
        self._number = 0
        self._message = f"msg_{uuid.uuid4().hex}"
        self._text = ""
        self._call: dict[str, Any] | None = None
        self._is_open = False
        self._reason: str | None = None
        self.usage: dict[str, Any] | None = None

    def take(self, text: str, calls: list[dict[str, str]], reason: str, usage: dict[str, Any] | None) -> None:
        """Take a finished answer."""
        self._text, self._reason, self.usage = text, reason, usage
        if calls:
            self._call = _call_item(calls[0]["id"], calls[0]["name"], calls[0]["arguments"])

    def response(self) -> dict[str, Any]:
        """Return the response as it stands."""
        body = self._body
        status = (
            "in_progress"
            if self._reason is None
            else "incomplete"
            if self._reason == "length"
            else "completed"
        )
        shown: dict[str, Any] = {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": body.model,
            "output": [] if self._reason is None else self._output(),
            "parallel_tool_calls": False,
            "previous_response_id": body.previous_response_id,
            "store": body.store,
            "temperature": body.temperature,
            "text": _written(body.text) if body.text and body.text.format else {"format": {"type": "text"}},
            "tool_choice": _written(body.tool_choice or "auto"),
            "tools": [tool for tool in body.tools or [] if tool.get("type") == "function"],
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": None if self.usage is None else _usage(self.usage),
        }
        if self.x_mindful is not None:
            shown["x_mindful"] = self.x_mindful
            shown["conversation"] = {"id": f"{memory.CONVERSATION}{self.x_mindful['session_id']}"}
        return shown

    def begin(self) -> list[dict[str, str]]:
        """Return the events before an answer."""
        return [
            self._event(kind, response=self.response())
            for kind in ("response.created", "response.in_progress")
        ]

    def text(self, text: str) -> list[dict[str, str]]:
        """Return the events of a piece of text."""
        events = [] if self._is_open else self._opened()
        self._text += text
        place = {"item_id": self._message, "output_index": 0, "content_index": 0}
        return [*events, self._event("response.output_text.delta", **place, delta=text, logprobs=[])]

    def piece(self, piece: CompletionPiece) -> list[dict[str, str]]:
        """Return the events of a piece of an answer."""
        if piece.usage is not None:
            self._reason, self.usage = piece.finish_reason, usage_of([piece.usage])
            return []
        if piece.tool_call is None:
            return self.text(piece.text) if piece.text else []
        events = []
        if self._call is None:
            self._call = _call_item(piece.tool_call["id"], piece.tool_call["name"], "")
            events.append(self._event("response.output_item.added", output_index=0, item=dict(self._call)))
        self._call["arguments"] += piece.tool_call["arguments"]
        place = {"item_id": self._call["id"], "output_index": 0, "delta": piece.tool_call["arguments"]}
        return [*events, self._event("response.function_call_arguments.delta", **place)]

    def end(self) -> list[dict[str, str]]:
        """Return the events after an answer."""
        events: list[dict[str, str]] = []
        if self._call is not None:
            place = {"item_id": self._call["id"], "output_index": 0, "name": self._call["name"]}
            arguments = self._call["arguments"]
            events.append(self._event("response.function_call_arguments.done", **place, arguments=arguments))
        else:
            if not self._is_open:
                events += self._opened()
            place = {"item_id": self._message, "output_index": 0, "content_index": 0}
            events.append(self._event("response.output_text.done", **place, text=self._text, logprobs=[]))
            events.append(self._event("response.content_part.done", **place, part=_text_part(self._text)))
        (item,) = self._output()
        events.append(self._event("response.output_item.done", output_index=0, item=item))
        kind = "response.incomplete" if self._reason == "length" else "response.completed"
        return [*events, self._event(kind, response=self.response())]

    def finish(self, reason: str, usage: dict[str, Any] | None) -> None:
        """Say why the answer ended, and what it cost."""
        self._reason, self.usage = reason, usage

    def _opened(self) -> list[dict[str, str]]:
        self._is_open = True
        item = {
            "id": self._message,
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        place = {"item_id": self._message, "output_index": 0, "content_index": 0}
        return [
            self._event("response.output_item.added", output_index=0, item=item),
            self._event("response.content_part.added", **place, part=_text_part("")),
        ]

    def _output(self) -> list[dict[str, Any]]:
        if self._call is not None:
            return [self._call | {"status": "completed"}]
        status = "incomplete" if self._reason == "length" else "completed"
        content = [_text_part(self._text)]
        return [
            {
                "id": self._message,
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": content,
            }
        ]

    def _event(self, kind: str, **members: Any) -> dict[str, str]:
        event = data({"type": kind, "sequence_number": self._number} | members) | {"event": kind}
        self._number += 1
        return event


class _KeptEvents:
    """The events of a streamed response that is kept."""

    def __init__(self, exchange: Exchange, body: ResponseRequest) -> None:
        self._exchange = exchange
        self._shown = Shown(body, "")

    def name(self, response_id: str) -> None:
        """Set the id, before the first event."""
        self._shown.id = response_id

    async def events(self, items: AsyncIterator[str | dict[str, Any]]) -> AsyncIterator[dict[str, str]]:
        """Yield the events of pieces, then those of the end."""
        shown = self._shown
        for event in shown.begin():
            yield event
        async for item in items:
            if isinstance(item, str):
                for event in shown.text(item):
                    yield event
                continue
            shown.x_mindful = memory.told_of(item)
            usage = usage_of([item]) if item["prompt_tokens"] is not None else None
            shown.finish(item["finish_reason"] or "stop", usage)
            self._exchange.note(usage=usage)
            for event in shown.end():
                yield event


def _written(given: BaseModel | str) -> Any:
    return given if isinstance(given, str) else given.model_dump(by_alias=True, exclude_none=True)


def _call_item(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"fc_{call_id.removeprefix('call_')}",
        "type": "function_call",
        "status": "in_progress",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"] | {"cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
