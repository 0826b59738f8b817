"""The desk's views: each reads a form or an address, makes one call, and writes what came of it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

from mindful_client.cli.confidence import charts_of, named
from mindful_client.errors import MindfulError
from starlette.responses import Response

from mindful_serve import memory
from mindful_serve.desk import sql
from mindful_serve.desk.page import page, part, written
from mindful_serve.errors import ApiError, api_error
from mindful_serve.exchange import Exchange, number

Form = Mapping[str, str]
_KINDS = ("fact", "message", "document", "summary", "reflection")
_PAGE = 25
"""Memories on a page; sql.LIST asks for as many."""


async def chat(exchange: Exchange, form: Form) -> Response:
    """Show a conversation, or an empty one."""
    session_id = _session(form)
    (row,) = await _rows(exchange, sql.CHAT, session_id=session_id)
    if session_id is not None and row["title"] is None and row["turns"] is None:
        raise ApiError(404, "there is no such conversation", code="not_found")
    turns, models = row["turns"] or [], row["models"] or []
    return page(
        "chat.html",
        exchange.request,
        title=row["title"] or "New conversation",
        session_id=session_id,
        sessions=row["sessions"],
        turns=turns,
        models=models,
    )


async def say(exchange: Exchange, form: Form) -> Response:
    """Answer a message, and stream the answer as parts of the page."""
    message = form.get("message", "").strip()
    if not message:
        raise ApiError(400, "the message is empty", param="message")
    session_id = _session(form)
    client = exchange.database.client(exchange.caller.tenant)
    arguments: dict[str, Any] = {"model": exchange.settings.model(form.get("model", ""))}

    async def made() -> AsyncGenerator[str | dict[str, Any], None]:
        begun = session_id or await client.session_start(title=message[:60])
        yield {"session_id": begun, "title": None if session_id else message[:60]}
        async for item in memory.streamed(
            exchange.database, exchange.caller, client, [], message, arguments, begun
        ):
            yield item

    async def events(items: AsyncIterator[str | dict[str, Any]]) -> AsyncIterator[dict[str, str]]:
        turn = {"key": f"turn-{uuid.uuid4().hex}", "message": message}
        try:
            async for item in items:
                if isinstance(item, str):
                    yield {"data": written("piece.html", text=item, **turn)}
                elif "message_id" not in item:
                    yield {"data": written("begun.html", **item, **turn)}
                else:
                    (row,) = await _rows(exchange, sql.LAST_TURN, session_id=item["session_id"])
                    yield {"data": written("ended.html", turn=row, **turn)}
        except (ApiError, MindfulError) as error:
            shown = error if isinstance(error, ApiError) else api_error(error)
            yield {"data": written("broken.html", text=shown.body["error"]["message"], **turn)}

    return await exchange.stream(made, events)


async def shown(exchange: Exchange, _form: Form) -> Response:
    """Show the memories of a reply, and why they were recalled."""
    rows = await _computed(exchange, sql.SHOWN, id=_id(exchange))
    return part("shown.html", exchange.request, memories=rows)


async def memories(exchange: Exchange, form: Form) -> Response:
    """List the newest memories, or those that match a query."""
    query, kind, before = form.get("q", "").strip(), form.get("kind", ""), form.get("before")
    if kind not in ("", *_KINDS):
        raise ApiError(400, f"there is no kind {kind!r}", param="kind")
    kinds = [kind] if kind else None
    if one := form.get("id"):
        rows = await _rows(exchange, sql.MEMORY, id=number(one, "id"))
    elif query:
        rows = await _computed(exchange, sql.RECALL, query=query, kinds=kinds)
    else:
        rows = await _rows(
            exchange, sql.LIST, kinds=kinds, before=number(before, "before") if before else None
        )
    older = None if query or one or len(rows) < _PAGE else rows[-1]["id"]
    return page(
        "memories.html",
        exchange.request,
        title="Memories",
        memories=rows,
        query=query,
        kind=kind,
        kinds=_KINDS,
        older=older,
    )


async def remember(exchange: Exchange, form: Form) -> Response:
    """Store a fact."""
    return await _changed(exchange, "Stored.", sql.INSERT, content=form.get("content", ""))


async def correct(exchange: Exchange, form: Form) -> Response:
    """Replace a memory by a new version."""
    note = "Corrected. The earlier version stays in its history."
    return await _changed(exchange, note, sql.CORRECT, id=_id(exchange), content=form.get("content", ""))


async def forget(exchange: Exchange, form: Form) -> Response:
    """Count what forgetting a memory deletes; once that is confirmed, forget it and show the receipt."""
    own = _id(exchange)
    dry_run = form.get("confirmed") != "yes"
    counts = await _rows(exchange, sql.FORGET, id=own, dry_run=dry_run)
    values: dict[str, Any] = {"id": own, "counts": counts, "receipt_id": None, "found": []}
    if not dry_run:
        values["receipt_id"] = counts[0]["receipt_id"]
        values["found"] = await _rows(exchange, sql.FOUND, receipt_id=values["receipt_id"])
    return part("forget.html", exchange.request, **values)


async def labels(exchange: Exchange, form: Form) -> Response:
    """Show the answer whose label is needed most."""
    skip = number(form.get("skip", "0"), "skip")
    return page("labels.html", exchange.request, title="Labels", **await _question(exchange, skip))


async def label(exchange: Exchange, form: Form) -> Response:
    """Label an answer, and show the next one or the answer's own line."""
    own, note = _id(exchange), form.get("note", "").strip()
    if form.get("correct") not in ("yes", "no"):
        raise ApiError(400, "correct is yes or no", param="correct")
    await _rows(exchange, sql.LABEL, id=own, correct=form["correct"] == "yes", note=note or None)
    if form.get("view") == "queue":
        skip = number(form.get("skip", "0"), "skip")
        return part("question.html", exchange.request, **await _question(exchange, skip))
    (turn,) = await _rows(exchange, sql.TURN, id=own)
    return part("turn.html", exchange.request, turn=turn)


async def confidence(exchange: Exchange, form: Form) -> Response:
    """Draw how sure the answers were, how right, and what was done with them."""
    (row,) = await _rows(exchange, sql.REPORT)
    parts = named(row["report"])
    values = {"charts": charts_of(parts), "thresholds": parts["thresholds"], "daily": parts["daily"]}
    return _live(exchange, form, "confidence", "Confidence", values)


async def status(exchange: Exchange, form: Form) -> Response:
    """Show models, jobs and slots."""
    (row,) = await _rows(exchange, sql.STATUS)
    slots = await _rows(exchange, sql.SLOTS) if row["sees_slots"] else None
    values = row | {"slots": slots, "connections": exchange.database.figures}
    return _live(exchange, form, "status", "Status", values)


async def retry(exchange: Exchange, form: Form) -> Response:
    """Put failed jobs back into the queue."""
    await _rows(exchange, sql.RETRY)
    return await status(exchange, dict(form) | {"live": "yes"})


async def _changed(exchange: Exchange, note: str, statement: Any, **parameters: Any) -> Response:
    """Write a memory that a statement made."""
    (made,) = await _computed(exchange, statement, **parameters)
    (row,) = await _rows(exchange, sql.MEMORY, id=made["id"])
    return part("memory.html", exchange.request, memory=row, note=note)


def _live(exchange: Exchange, form: Form, name: str, title: str, values: Mapping[str, Any]) -> Response:
    """Write a view, or only its part that changes."""
    if form.get("live"):
        return part(f"{name}_live.html", exchange.request, **values)
    return page(f"{name}.html", exchange.request, title=title, **values)


async def _question(exchange: Exchange, skip: int) -> dict[str, Any]:
    rows = await _rows(exchange, sql.QUEUE, skip=skip)
    if not rows and skip:
        return await _question(exchange, 0)
    return {"question": rows[0] if rows else None, "skip": skip}


async def _rows(exchange: Exchange, statement: Any, **parameters: Any) -> list[dict[str, Any]]:
    return await exchange.whole(exchange.database.rows(exchange.caller.tenant, statement, parameters))


async def _computed(exchange: Exchange, statement: Any, **parameters: Any) -> list[dict[str, Any]]:
    """Run a statement that embeds a text."""
    return await exchange.whole(exchange.database.compute(exchange.caller.tenant, statement, parameters))


def _id(exchange: Exchange) -> int:
    return number(exchange.request.path_params["id"], "id")


def _session(form: Form) -> uuid.UUID | None:
    text = form.get("session", "")
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        raise ApiError(404, "there is no such conversation", code="not_found", param="session") from None
