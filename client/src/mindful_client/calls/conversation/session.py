"""Sessions and their messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from uuid import UUID

from mindful_client.calls.statement import DEFAULT, Call, Json, row, rows, scalar, scalars
from mindful_client.types import ContextPart, ForgetCount, SessionDetail


def session_start(
    *, title: str | None = DEFAULT, system_prompt: str | None = DEFAULT, metadata: Json | None = DEFAULT
) -> Call[UUID]:
    """Start a conversation and return its id."""
    return scalar("session_start", locals())


def session_continue(messages: Sequence[Json]) -> Call[UUID]:
    """Return the newest session that consists of these messages, or start one with them.

    Raises InvalidInputError, also for more than 1 MiB or 10,000 messages.
    """
    return scalar("session_continue", locals())


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
    """Return the parts of the prompt for a message, or for the last message of the session.

    Raises InvalidInputError, NotFoundError, NotReadyError (no query, and the last message has a reply).
    """
    return rows("session_context", locals(), ContextPart)


def session_summarize(session_id: UUID | str, *, method: str | None = DEFAULT) -> Call[int]:
    """Summarize the turns of a session that have no summary yet, ten by ten, and return how many summaries were made.

    Raises InvalidInputError (no such method), NotFoundError, NotReadyError.
    """
    return scalar("session_summarize", locals())


def session_get(session_id: UUID | str) -> Call[SessionDetail]:
    """Return a session with the number of its messages.

    Raises NotFoundError.
    """
    return row("session_get", locals(), SessionDetail)


def session_list(
    *, before_session_id: UUID | str | None = DEFAULT, max_count: int = DEFAULT
) -> Call[list[SessionDetail]]:
    """Return sessions, newest first.

    Pass the last session_id of a page as before_session_id to get the next page.

    Raises InvalidInputError, NotFoundError (no session before_session_id).
    """
    return rows("session_list", locals(), SessionDetail)


def session_delete(session_id: UUID | str, *, dry_run: bool = DEFAULT) -> Call[list[ForgetCount]]:
    """Delete a session with its messages, and return the counts of memory_forget.

    Raises NotFoundError, InvalidInputError.
    """
    return rows("session_delete", locals(), ForgetCount)
