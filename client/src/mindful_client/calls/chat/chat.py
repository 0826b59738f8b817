"""Chat with memory."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from mindful_client.calls.conversation.session import message_insert
from mindful_client.calls.statement import DEFAULT, Call, Stream, row, scalar, stream
from mindful_client.types import ChatDetail


def llm_chat(
    message: str | None,
    *,
    session_id: UUID | str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
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
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
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
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
) -> Stream[str]:
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
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
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
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        repeat_penalty=repeat_penalty,
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
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
) -> Stream[str]:
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
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        repeat_penalty=repeat_penalty,
    )
    return replace(answer, before=message_insert(session_id, "user", message))
