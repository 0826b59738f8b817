"""Conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from uuid import UUID

from mindful_client.calls.statement import DEFAULT, Call, Json, Stream, row, rows, scalar, scalars, stream
from mindful_client.types import ChatDetail, ContextPart


def session_start(
    *, title: str | None = DEFAULT, system_prompt: str | None = DEFAULT, metadata: Json | None = DEFAULT
) -> Call[UUID]:
    """Start a conversation and return its id."""
    return scalar("session_start", locals())


def message_insert(
    session_id: UUID | str,
    role: str,
    content: str,
    *,
    metadata: Json | None = DEFAULT,
    created_at: date | None = DEFAULT,
) -> Call[int]:
    """Append a message to a session and return its id. Roles: system, user, assistant, tool, clarification.

    Raises InvalidInputError, NotFoundError (no such session of yours).
    """
    return scalar("message_insert", locals())


def message_insert_many(session_id: UUID | str, messages: Sequence[Json]) -> Call[list[int]]:
    """Append messages in order, all or none, and return their ids.

    Each has role, content and, if wanted, metadata and created_at.

    Raises as message_insert, naming the element.
    """
    return scalars("message_insert_many", locals())


def session_context(
    session_id: UUID | str,
    *,
    query: str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    memories: int = DEFAULT,
) -> Call[list[ContextPart]]:
    """Tell what the model would be shown for a message, or for the session's last one, part by part.

    Raises InvalidInputError, NotFoundError, NotReadyError (no query, and no message waits for an answer).
    """
    return rows("session_context", locals(), ContextPart)


def session_summarize(session_id: UUID | str, *, method: str | None = DEFAULT) -> Call[int]:
    """Summarize the turns of a session that have no summary yet, ten by ten, and return how many summaries were made.

    Raises InvalidInputError (no such method), NotFoundError, NotReadyError.
    """
    return scalar("session_summarize", locals())


def llm_chat(
    message: str | None,
    *,
    session_id: UUID | str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
) -> Call[str]:
    """Answer a message and store both turns, in one transaction; without a session, in a new one.

    message None answers the session's last message. `chat` keeps the message even where no answer comes.
    Raises InvalidInputError, NotFoundError, NotReadyError (no message waits), QueryCancelledError.
    """
    return scalar("llm_chat", locals())


def llm_chat_detail(
    message: str | None,
    *,
    session_id: UUID | str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
) -> Call[ChatDetail]:
    """Do as llm_chat, and tell where the reply is, what it rests on, what it cost and how sure the model was.

    Raises as llm_chat.
    """
    return row("llm_chat_detail", locals(), ChatDetail)


def llm_chat_stream(
    message: str | None,
    *,
    session_id: UUID | str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
) -> Stream:
    """Do as llm_chat, piece by piece, as the pieces are made; both turns are stored after the last.

    Raises as llm_chat, when the first piece is asked for.
    """
    return stream("llm_chat_stream", locals())


def chat(
    session_id: UUID | str,
    message: str,
    *,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
) -> Call[ChatDetail]:
    """Commit a message, then answer it: whatever becomes of the answer, the message is kept.

    Two statements: message_insert, then llm_chat_detail(None, session_id=...), which also asks again after a
    failure. Within a transaction of the caller's nothing is committed: its rollback takes the message too.
    Raises as llm_chat.
    """
    answer = llm_chat_detail(
        None,
        session_id=session_id,
        model=model,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        memories=memories,
    )
    return replace(answer, before=message_insert(session_id, "user", message))


def chat_stream(
    session_id: UUID | str,
    message: str,
    *,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
) -> Stream:
    """Do as chat, piece by piece: the message is committed when the first piece is asked for.

    llm_chat_stream(None, session_id=...) asks again after a failure. Raises as llm_chat.
    """
    answer = llm_chat_stream(
        None,
        session_id=session_id,
        model=model,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        memories=memories,
    )
    return replace(answer, before=message_insert(session_id, "user", message))
