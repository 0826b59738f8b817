"""The tools that a client is offered if it asks for them."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from mindful_serve import memory
from mindful_serve.mcp import results as r
from mindful_serve.mcp.call import Call
from mindful_serve.mcp.core import AsOf, Id, Kinds, SessionId, forgotten
from mindful_serve.mcp.tool import tool

Session = Annotated[UUID, Field(description="A conversation's id, from session_list.")]
Model = Annotated[str | None, Field(description="A registered model. The default is the default one.")]
MaxTokens = Annotated[int, Field(ge=1, description="The most tokens of the answer.")]
MaxCount = Annotated[int, Field(ge=1, le=1000, description="The most rows to return.")]
Source = Annotated[str, Field(description="A document's name, such as its path or URL.")]
_TAIL = 200
"""Characters of an unfinished answer that its progress shows."""
_STATUS = """
    select (select extversion from pg_catalog.pg_extension where extname = 'mindful') as version,
        _mindful.tenant() as tenant,
        (select coalesce(jsonb_object_agg(kind, count), '{}') from (
            select kind, count(*) from mindful.memory where superseded_by is null group by kind) kinds) as memories,
        (select count(*) from mindful.session) as sessions,
        (select count(*) from mindful.embedding_job) as waiting,
        (select coalesce(jsonb_object_agg(name, kind), '{}') from mindful.model where withdrawn_at is null) as models
"""


@tool("Ask the database's own model")
async def chat(
    call: Call,
    message: str,
    session_id: Annotated[UUID | None, Field(description="The conversation to continue.")] = None,
    model: Model = None,
    max_tokens: MaxTokens = 256,
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0,
    seed: int | None = None,
) -> r.Reply:
    """Answer a message with a small local model that recalls memories, store both turns, and say how sure it is."""
    arguments: dict[str, Any] = {
        "model": registered(call, model),
        "max_tokens": max_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    if not call.wants_progress:
        work = call.client.llm_chat_detail(message, session_id=session_id, **arguments)
        return r.Reply.model_validate(await call.whole(work))
    words: list[str] = []

    async def on_piece(piece: str | dict[str, Any]) -> None:
        words.append(str(piece))
        await call.progress(len(words), "".join(words)[-_TAIL:])

    last = await call.streamed(
        lambda: memory.streamed(call.database, call.caller, call.client, [], message, arguments, session_id),
        on_piece,
    )
    assert isinstance(last, dict)
    return r.Reply.model_validate(last | {"reply": "".join(words)})


@tool("List memories", reads=True)
async def memory_list(
    call: Call,
    kinds: Kinds = None,
    metadata: Annotated[
        dict[str, Any] | None, Field(description="Only memories whose metadata contain this.")
    ] = None,
    session_id: SessionId = None,
    as_of: AsOf = None,
    before_id: Annotated[int | None, Field(description="The last id of the page before this one.")] = None,
    max_count: MaxCount = 20,
) -> r.Memories:
    """Return memories, newest first. With session_id, the messages of a conversation."""
    given: dict[str, Any] = {"as_of": as_of} if as_of else {}
    work = call.quick.memory_list(
        kinds=kinds,
        metadata=metadata,
        session_id=session_id,
        before_id=before_id,
        max_count=max_count,
        **given,
    )
    return r.Memories(memories=[r.Memory.model_validate(one) for one in await call.brief(work)])


@tool("Show a memory's versions", reads=True)
async def memory_history(call: Call, id: Id) -> r.Versions:
    """Return all versions of a memory, oldest first."""
    rows = await call.brief(call.quick.memory_history(id))
    return r.Versions(versions=[r.Version.model_validate(one) for one in rows])


@tool("Follow links from a memory", reads=True)
async def memory_neighbors(
    call: Call,
    id: Id,
    depth: Annotated[int, Field(ge=1, le=5, description="The most links to follow.")] = 1,
    relations: Annotated[list[str] | None, Field(description="Only these relations.")] = None,
    direction: Literal["out", "in", "both"] = "both",
    k: Annotated[int, Field(ge=1, le=100)] = 20,
) -> r.Neighbors:
    """Return the memories that links lead to, nearest first."""
    work = call.quick.memory_neighbors(id, depth=depth, relations=relations, direction=direction, k=k)
    return r.Neighbors(neighbors=[r.Neighbor.model_validate(one) for one in await call.brief(work)])


@tool("Link two memories", again=True)
async def memory_link(
    call: Call,
    source_id: Id,
    target_id: Id,
    relation: Annotated[str, Field(description="Such as works_for.")],
    weight: Annotated[float, Field(ge=0, le=1)] = 1.0,
) -> r.Linked:
    """Link a memory to another by a relation."""
    work = call.quick.memory_link_insert(source_id, target_id, relation, weight=weight)
    return r.Linked(created=await call.brief(work))


@tool("Check what is left of forgotten memories", reads=True)
async def memory_forget_check(
    call: Call, receipt_id: Annotated[int, Field(ge=1, description="A receipt of memory_forget.")]
) -> r.Findings:
    """Search all tables for traces of what a receipt deleted."""
    rows = await call.whole(call.client.memory_forget_check(receipt_id=receipt_id))
    return r.Findings(findings=[r.Finding.model_validate(one) for one in rows])


@tool("Draw facts from conversations", again=True)
async def memory_consolidate(
    call: Call,
    max_seconds: Annotated[float, Field(gt=0, le=600, description="Continue by another call.")] = 30,
) -> r.Consolidated:
    """Read new messages and documents, and store the facts in them as memories with quotes of their sources."""
    work = call.client.memory_consolidate(limits={"seconds": max_seconds})
    return r.Consolidated.model_validate(await call.whole(work))


@tool("List conversations", reads=True)
async def session_list(
    call: Call,
    before_session_id: Annotated[
        UUID | None, Field(description="The last id of the page before this one.")
    ] = None,
    max_count: MaxCount = 20,
) -> r.Sessions:
    """Return conversations, newest first. memory_list(session_id) returns their messages."""
    work = call.quick.session_list(before_session_id=before_session_id, max_count=max_count)
    return r.Sessions(sessions=[r.Session.model_validate(one) for one in await call.brief(work)])


@tool("Delete a conversation", deletes=True, again=True)
async def session_delete(
    call: Call,
    session_id: Session,
    dry_run: Annotated[bool, Field(description="Whether only to count what would be deleted.")] = False,
) -> r.Forgotten:
    """Delete a conversation, its messages and all that rests on them alone. Use it only when the user asks for it."""
    return forgotten(await call.whole(call.client.session_delete(session_id, dry_run=dry_run)), dry_run)


@tool("Store a document", deletes=True, again=True)
async def document_insert(
    call: Call,
    content: str,
    source: Source,
    title: str | None = None,
    format: Literal["auto", "prose", "markdown", "code"] = "auto",
) -> r.DocumentChange:
    """Store a document in chunks that memory_search finds. The same source replaces what it stored before."""
    work = call.client.document_insert(content, source, title=title, format=format)
    return r.DocumentChange.model_validate(await call.whole(work))


@tool("List documents", reads=True)
async def document_list(call: Call) -> r.Documents:
    """Return the stored documents by source."""
    rows = await call.brief(call.quick.document_list())
    return r.Documents(documents=[r.Document.model_validate(one) for one in rows])


@tool("Delete a document", deletes=True, again=True)
async def document_delete(call: Call, source: Source) -> r.Deleted:
    """Delete a document and what was drawn from it alone. Use it only when the user asks for it."""
    return r.Deleted(chunks=await call.whole(call.client.document_delete(source)))


@tool("Label an answer")
async def answer_label(
    call: Call,
    message_id: Annotated[int, Field(ge=1, description="The message_id of a reply of chat.")],
    correct: bool,
    note: str | None = None,
) -> r.Labeled:
    """Record whether a reply of chat was right. Such labels calibrate its probabilities."""
    return r.Labeled(outcome_id=await call.brief(call.quick.answer_label(message_id, correct, note=note)))


@tool("Generate a text", scope="chat", reads=True)
async def llm_generate(
    call: Call,
    prompt: str,
    model: Model = None,
    max_tokens: MaxTokens = 256,
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0,
    seed: int | None = None,
    json_schema: Annotated[
        dict[str, Any] | None, Field(description="The answer is JSON of this schema.")
    ] = None,
) -> r.Text:
    """Answer a prompt with a small local model. It reads and writes no memory."""
    work = call.client.llm_generate_detail(
        prompt,
        model=registered(call, model),
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        json_schema=json_schema,
    )
    return r.Text.model_validate(await call.whole(work))


@tool("Classify a text", scope="chat", reads=True)
async def llm_classify(
    call: Call,
    text: str,
    labels: Annotated[list[str], Field(min_length=2, max_length=100)],
    model: Model = None,
) -> r.Label:
    """Return the most probable label of a text, and the probabilities of all."""
    found = await call.whole(call.client.llm_classify_many([text], labels, model=registered(call, model)))
    return r.Label.model_validate((found or [None])[0])


@tool("Show the status", reads=True)
async def mindful_status(call: Call) -> r.Status:
    """Return how many memories there are of each kind, how many wait to be embedded, and the models."""
    return await status(call)


def registered(call: Call, model: str | None) -> str | None:
    """Return the registered name of a model; None for the default one."""
    return call.settings.model(model or "")


async def status(call: Call) -> r.Status:
    """Return the tenant's status."""
    (row,) = await call.rows(_STATUS)
    return r.Status.model_validate(row)
