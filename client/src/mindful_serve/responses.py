"""POST /v1/responses: kept in a session unless `store` is false."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

from mindful_client.types import CompletionPiece
from starlette.responses import JSONResponse, Response

from mindful_serve import memory
from mindful_serve.chunks import MEMORY, usage_of
from mindful_serve.errors import ApiError
from mindful_serve.exchange import Exchange
from mindful_serve.requests import SAMPLING, NamedTool, ResponseRequest, given_of
from mindful_serve.shown import Shown

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
    earlier, question = _parted(messages)
    client = exchange.database.client(exchange.caller.tenant)
    arguments = memory.arguments_of(exchange, body, body.max_output_tokens)
    if not body.model.startswith(MEMORY):
        arguments["memories"] = 0
    place = _place(body)

    @asynccontextmanager
    async def begun() -> AsyncIterator[tuple[UUID, str]]:
        with _alone(exchange, place):
            session_id, turn = await _session(exchange, body, place)
            async with _begun(exchange, session_id, turn, body.instructions, earlier) as names:
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
    shown = Shown(body, response_id, memory.x_mindful_of(vars(detail)))
    shown.take(detail.reply, [], detail.finish_reason, usage)
    return JSONResponse(shown.response())


@asynccontextmanager
async def _begun(
    exchange: Exchange,
    session_id: UUID | None,
    turn: int,
    instructions: str | None,
    earlier: list[dict[str, Any]],
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
        if earlier:
            ids = await client.message_insert_many(session_id, earlier)
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
            shown.x_mindful = memory.x_mindful_of(item)
            usage = usage_of([item]) if item["prompt_tokens"] is not None else None
            shown.finish(item["finish_reason"] or "stop", usage)
            self._exchange.note(usage=usage)
            for event in shown.end():
                yield event
