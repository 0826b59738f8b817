"""Tools: functions that a chat may call."""

from __future__ import annotations

from mindful_client.calls.statement import DEFAULT, Call, Json, scalar


def tool_register(
    name: str,
    function: str,
    description: str,
    *,
    json_schema: Json | None = DEFAULT,
    read_only: bool = DEFAULT,
    scope: str = DEFAULT,
) -> Call[str]:
    """Let the caller's chats call a function, such as ``public.exchange_rate(text,text)``; return the tool's name.

    Scope ``global``, for administrators, offers it to all. Raises InvalidInputError, NotAllowedError.
    """
    return scalar("tool_register", locals())


def tool_accept(name: str) -> Call[str]:
    """Let the caller's chats call a tool that an administrator offers, and return its name.

    Raises NotFoundError, NotAllowedError, NotReadyError.
    """
    return scalar("tool_accept", locals())


def tool_unregister(name: str, *, scope: str = DEFAULT) -> Call[bool]:
    """Take a tool, or with scope ``global`` an offer, back, and tell whether there was one."""
    return scalar("tool_unregister", locals())
