"""Conversations in the form that chat templates accept."""

from __future__ import annotations

from collections.abc import Sequence

from mindful.core.ports import Message


def merged(messages: Sequence[Message]) -> list[Message]:
    """Join consecutive messages of one role, and drop empty system messages."""
    found: list[Message] = []
    for message in messages:
        if message.role == "system" and not message.content:
            continue
        if found and found[-1].role == message.role:
            message = Message(message.role, f"{found.pop().content}\n\n{message.content}")
        found.append(message)
    return found


def as_user(messages: Sequence[Message]) -> list[Message]:
    """Turn system messages into user messages, for templates without a system role."""
    return [Message("user" if m.role == "system" else m.role, m.content) for m in messages]
