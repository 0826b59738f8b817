"""Models named mindful/NAME: answers that recall memories and store both turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from typing import Any
from uuid import UUID

from mindful_client import AsyncClient
from mindful_client.errors import MindfulError
from starlette.responses import JSONResponse, Response

from mindful_serve import chunks
from mindful_serve.database import Caller, Database
from mindful_serve.errors import ApiError
from mindful_serve.exchange import Exchange
from mindful_serve.requests import SAMPLING, ChatRequest, ConversationRequest, ResponseRequest, given_of

CONVERSATION = "conv_"
ERRAND_TOKENS = 256
"""The most tokens of an answer to a user interface's own request, unless it states a limit: small models talk on."""
_TAKEN = frozenset(
    {
        "model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "response_format",
        "store", "user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier", "modalities", "logprobs",
        "parallel_tool_calls", "tools", "tool_choice", *SAMPLING,
    }
)  # fmt: skip
# What a reply's row says of it, with what its generation cost where that is recorded.
_REPLY = """
    select m.id as message_id, m.metadata ->> 'model' as model, m.metadata ->> 'action' as action,
        (m.metadata ->> 'confidence')::float as confidence, (m.metadata ->> 'probability')::float as probability,
        coalesce(m.metadata -> 'memory_ids', '[]') as memory_ids, g.prompt_tokens, g.cached_tokens, g.completion_tokens,
        g.finish_reason
    from mindful.memory m
    left join mindful.decision d on d.tenant = m.tenant and d.message_id = m.id
    left join mindful.generation g on g.tenant = d.tenant and g.id = d.generation_id
    where m.session_id = %(session_id)s and m.role in ('assistant', 'clarification')
    order by m.turn desc, d.id desc
    limit 1
"""

_UNANSWERED = """
    select coalesce(array_agg(m.id), '{}') as ids
    from mindful.memory m
    where m.session_id = %(session_id)s and m.turn between %(first)s and %(last)s
    having not exists (select from mindful.memory l where l.session_id = %(session_id)s and l.turn > %(last)s)
"""


async def chat(exchange: Exchange, body: ChatRequest) -> Response:
    """Answer the last message in the session that the others are."""
    exchange.require("memory")
    refuse_rest(body)
    *history, last = [_plain(at, message) for at, message in enumerate(body.messages)]
    if last["role"] != "user":
        raise ApiError(400, "the last message must be the user's", param="messages")
    client = exchange.database.client(exchange.caller.tenant)
    arguments = arguments_of(exchange, body, body.most_tokens())
    if body.stream:
        return await exchange.stream(
            lambda: streamed(exchange.database, exchange.caller, client, history, last["content"], arguments),
            _Chunks(exchange, body).reply_events,
        )

    async def answered() -> Any:
        async with _continued(exchange.database, exchange.caller, client, history) as session_id:
            return await client.llm_chat_detail(last["content"], session_id=session_id, **arguments)

    detail = await exchange.whole(answered())
    usage = chunks.usage_of([vars(detail)])
    exchange.note(usage=usage)
    message = {"role": "assistant", "content": detail.reply, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": detail.finish_reason}
    head = chunks.head_of("chat.completion", body.model)
    return JSONResponse(head | {"choices": [choice], "usage": usage, "x_mindful": x_mindful_of(vars(detail))})


def is_errand(messages: list[dict[str, Any]]) -> bool:
    """Tell whether a user interface asks for itself, such as for a title, which is nothing to remember.

    Open WebUI sends such requests to the model of the chat, as one message of this form.
    """
    content = messages[0].get("content") if len(messages) == 1 else None
    return isinstance(content, str) and content.startswith("### Task:") and "<chat_history>" in content


async def converse(exchange: Exchange, body: ConversationRequest) -> Response:
    """Start a session."""
    exchange.require("memory")
    client = exchange.database.client(exchange.caller.tenant)
    session_id = await exchange.whole(client.session_start(metadata=body.metadata or {}))
    return JSONResponse(
        {
            "id": f"{CONVERSATION}{session_id}",
            "object": "conversation",
            "created_at": int(time.time()),
            "metadata": body.metadata or {},
        }
    )


def refuse_rest(body: ChatRequest) -> None:
    """Refuse what llm_chat does not take."""
    given = {name for name in body.model_fields_set if getattr(body, name) is not None}
    plain = body.response_format is None or body.response_format.type == "text"
    if unsupported := sorted(given - _TAKEN) or ([] if plain else ["response_format"]):
        raise _unsupported(unsupported[0])
    if body.n not in (None, 1):
        raise _unsupported("n")
    if body.logprobs:
        raise _unsupported("logprobs")
    # User interfaces offer their tools with every request. A model need not call what it is offered.
    if body.tool_choice not in (None, "auto", "none"):
        raise _unsupported("tool_choice")


def arguments_of(
    exchange: Exchange, body: ChatRequest | ResponseRequest, max_tokens: int | None
) -> dict[str, Any]:
    """Return the arguments of llm_chat that a body asks for."""
    arguments = given_of(body, SAMPLING)
    arguments["model"] = exchange.settings.model(body.model.removeprefix(chunks.MEMORY))
    if max_tokens is not None:
        arguments["max_tokens"] = max_tokens
    return arguments


async def streamed(
    database: Database,
    caller: Caller,
    client: AsyncClient,
    history: list[dict[str, Any]],
    message: str,
    arguments: dict[str, Any],
    session_id: UUID | None = None,
) -> AsyncGenerator[str | dict[str, Any], None]:
    """Yield the pieces of a reply, then what its row says."""
    place = _continued(database, caller, client, history) if session_id is None else nullcontext(session_id)
    async with place as known:
        pieces = client.llm_chat_stream(message, session_id=known, **arguments)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece
        (row,) = await database.rows(caller.tenant, _REPLY, {"session_id": known})
        yield row | {"session_id": known}


@asynccontextmanager
async def _continued(
    database: Database, caller: Caller, client: AsyncClient, history: list[dict[str, Any]]
) -> AsyncIterator[UUID]:
    """Give the session of a history. One that begins here with no message is deleted if it gets no reply."""
    session_id = await client.session_continue(history)
    try:
        yield session_id
    except BaseException:
        if all(one["role"] in ("system", "developer") for one in history):
            await undo(database, caller, session_id, True, 1, 0)
        raise


async def undo(
    database: Database, caller: Caller, session_id: UUID, is_new: bool, first: int, last: int
) -> None:
    """Forget the turns before a question, or their session if it is new, unless a reply follows."""

    async def forgotten() -> None:
        client = database.client(caller.tenant, short=True)
        place = {"session_id": session_id, "first": first, "last": last}
        for row in await database.rows(caller.tenant, _UNANSWERED, place):
            if is_new:
                await client.session_delete(session_id)
            elif row["ids"]:
                await client.memory_forget(ids=row["ids"])

    task = await database.run(forgotten(), short=True)
    # What failed before is the error to show.
    with suppress(ApiError, MindfulError):
        await asyncio.shield(task)


def x_mindful_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the members of x_mindful: what a reply has beside its text."""
    names = ("confidence", "probability", "action", "memory_ids", "message_id")
    return {name: row[name] for name in names} | {"session_id": str(row["session_id"])}


class _Chunks(chunks.Chunks):
    async def reply_events(self, items: AsyncIterator[str | dict[str, Any]]) -> AsyncIterator[dict[str, str]]:
        """Yield a chunk for each piece, and in the last one the members of x_mindful."""
        async for item in items:
            if isinstance(item, str):
                yield self.chunk({"content": item})
                continue
            yield self.chunk({}, 0, item["finish_reason"] or "stop", x_mindful=x_mindful_of(item))
            known = item["prompt_tokens"] is not None
            for event in self.end(chunks.usage_of([item] if known else [])):
                yield event


def _plain(at: int, message: dict[str, Any]) -> dict[str, str]:
    """Return a message's role and text; sessions hold nothing else."""
    given = {name for name, value in message.items() if value not in (None, [])}
    if other := sorted(given - {"role", "content"}):
        raise _unsupported(f"messages[{at}].{other[0]}")
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "developer", "user", "assistant"):
        raise _unsupported(f"messages[{at}].role")
    return {"role": str(role), "content": text_of(f"messages[{at}].content", content)}


def text_of(param: str, content: Any) -> str:
    """Return a content's text, which may be in parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [None]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ApiError(400, f"{param} holds something that is not text", param=param)
    return "".join(map(str, texts))


def _unsupported(name: str) -> ApiError:
    return ApiError(
        400,
        f"models that remember do not support {name}; use the model without {chunks.MEMORY}",
        code="unsupported_parameter",
        param=name,
    )
