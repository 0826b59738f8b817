"""GET and DELETE of what /v1/responses and /v1/conversations stored."""

from __future__ import annotations

from typing import Any, LiteralString

from starlette.responses import JSONResponse, Response

from mindful_serve import memory
from mindful_serve.chunks import usage_of
from mindful_serve.errors import ApiError
from mindful_serve.exchange import Exchange, number
from mindful_serve.requests import ResponseRequest
from mindful_serve.responses import conversation_of, place_of
from mindful_serve.shown import Shown

_MOST_ITEMS = 100
# The reply to a turn, with what its generation cost where that is recorded.
_REPLY: LiteralString = """
    select m.id as message_id, m.session_id, m.content, m.turn,
        floor(extract(epoch from m.created_at))::bigint as created,
        m.metadata ->> 'model' as model, m.metadata ->> 'action' as action,
        (m.metadata ->> 'confidence')::real as confidence, (m.metadata ->> 'probability')::real as probability,
        coalesce(m.metadata -> 'memory_ids', '[]') as memory_ids, g.prompt_tokens, g.cached_tokens,
        g.completion_tokens, coalesce(g.finish_reason, 'stop') as finish_reason, s.system_prompt
    from mindful.memory q
    join mindful.session s on s.tenant = q.tenant and s.session_id = q.session_id
    join mindful.memory m on m.tenant = q.tenant and m.session_id = q.session_id and m.turn > q.turn
        and m.role in ('assistant', 'clarification')
    left join mindful.decision d on d.tenant = m.tenant and d.message_id = m.id
    left join mindful.generation g on g.tenant = d.tenant and g.id = d.generation_id
    where q.session_id = %(session_id)s and q.turn = %(turn)s and q.role = 'user'
    order by m.turn, d.id desc
    limit 1
"""
# The messages of one request: those after the reply before it.
_INPUT: LiteralString = """
    select m.id, m.role, m.content
    from mindful.memory m
    where m.session_id = %(session_id)s and m.turn <= %(turn)s and m.role in ('user', 'assistant', 'system')
        and m.turn > coalesce((
            select max(e.turn) from mindful.memory e
            join mindful.decision d on d.tenant = e.tenant and d.message_id = e.id
            where e.session_id = %(session_id)s and e.turn < %(turn)s
        ), 0)
    order by m.turn
"""
_FORGET: LiteralString = "select f.receipt_id from mindful.memory_forget(ids => %(ids)s::bigint[]) f"
_SESSION: LiteralString = """
    select s.session_id, s.metadata, floor(extract(epoch from s.created_at))::bigint as created
    from mindful.session s
    where s.session_id = %(session_id)s
"""
_DELETE: LiteralString = "select f.receipt_id from mindful.session_delete(%(session_id)s) f"
_ITEMS: LiteralString = """
    select m.id, m.role, m.content
    from mindful.memory m
    where m.session_id = %(session_id)s and m.role in ('user', 'assistant', 'clarification', 'system')
        and (%(after)s::bigint is null or case when %(descends)s then m.id < %(after)s else m.id > %(after)s end)
    order by case when %(descends)s then -m.turn else m.turn end
    limit %(limit)s + 1
"""


async def response(exchange: Exchange) -> Response:
    """Show a stored response."""
    row = await _reply(exchange)
    body = ResponseRequest(input="", model=row["model"] or "", instructions=row["system_prompt"])
    shown = Shown(body, exchange.request.path_params["id"], memory.x_mindful_of(row), row["created"])
    usage = None if row["prompt_tokens"] is None else usage_of([row])
    shown.take(row["content"], [], row["finish_reason"], usage)
    return JSONResponse(shown.response())


async def response_delete(exchange: Exchange) -> Response:
    """Forget a stored response with its input, and what was drawn from them alone."""
    row = await _reply(exchange)
    inputs = await _rows(exchange, _INPUT, place_of(exchange.request.path_params["id"]) or {})
    await _rows(exchange, _FORGET, {"ids": [*(one["id"] for one in inputs), row["message_id"]]})
    return _deleted(exchange, "response.deleted")


async def input_items(exchange: Exchange) -> Response:
    """List the messages that a stored response answered."""
    await _reply(exchange)
    rows = await _rows(exchange, _INPUT, place_of(exchange.request.path_params["id"]) or {})
    return _listed(rows[::-1] if _descends(exchange) else rows, False)


async def conversation(exchange: Exchange) -> Response:
    """Show a conversation."""
    (row,) = await _conversation(exchange)
    return JSONResponse(
        {
            "id": f"{memory.CONVERSATION}{row['session_id']}",
            "object": "conversation",
            "created_at": row["created"],
            "metadata": row["metadata"],
        }
    )


async def conversation_delete(exchange: Exchange) -> Response:
    """Forget a conversation with all its messages."""
    (row,) = await _conversation(exchange)
    await _rows(exchange, _DELETE, {"session_id": row["session_id"]})
    return _deleted(exchange, "conversation.deleted")


async def items(exchange: Exchange) -> Response:
    """List the messages of a conversation, newest first unless `order` is asc."""
    (row,) = await _conversation(exchange)
    given = exchange.request.query_params
    limit = number(given.get("limit", "20"), "limit")
    if not 1 <= limit <= _MOST_ITEMS:
        raise ApiError(400, f"limit is between 1 and {_MOST_ITEMS}", param="limit")
    after = given.get("after")
    parameters = {
        "session_id": row["session_id"],
        "after": None if after is None else number(after.removeprefix("msg_"), "after"),
        "descends": _descends(exchange),
        "limit": limit,
    }
    rows = await _rows(exchange, _ITEMS, parameters)
    return _listed(rows[:limit], len(rows) > limit)


async def _reply(exchange: Exchange) -> dict[str, Any]:
    exchange.require("memory")
    given = exchange.request.path_params["id"]
    place = place_of(given)
    rows = await _rows(exchange, _REPLY, place) if place else []
    if not rows:
        raise ApiError(404, f"there is no response {given!r}", code="not_found")
    return rows[0]


async def _conversation(exchange: Exchange) -> list[dict[str, Any]]:
    exchange.require("memory")
    given = exchange.request.path_params["id"]
    place = conversation_of(given)
    rows = await _rows(exchange, _SESSION, place) if place else []
    if not rows:
        raise ApiError(404, f"there is no conversation {given!r}", code="not_found")
    return rows


async def _rows(
    exchange: Exchange, statement: LiteralString, parameters: dict[str, Any]
) -> list[dict[str, Any]]:
    return await exchange.whole(exchange.database.rows(exchange.caller.tenant, statement, parameters))


def _deleted(exchange: Exchange, kind: str) -> Response:
    return JSONResponse({"id": exchange.request.path_params["id"], "object": kind, "deleted": True})


def _listed(rows: list[dict[str, Any]], has_more: bool) -> Response:
    listed = [_item(row) for row in rows]
    ends = (
        {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]}
        if listed
        else {"first_id": "", "last_id": ""}
    )
    return JSONResponse({"object": "list", "data": listed, "has_more": has_more} | ends)


def _item(row: dict[str, Any]) -> dict[str, Any]:
    role = "assistant" if row["role"] == "clarification" else row["role"]
    part: dict[str, Any] = {"type": "input_text", "text": row["content"]}
    if role == "assistant":
        part = {"type": "output_text", "text": row["content"], "annotations": [], "logprobs": []}
    return {
        "id": f"msg_{row['id']}",
        "type": "message",
        "role": role,
        "status": "completed",
        "content": [part],
    }


def _descends(exchange: Exchange) -> bool:
    order = exchange.request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise ApiError(400, "order is asc or desc", param="order")
    return order == "desc"
