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
    """Let chats call a function, such as ``public.exchange_rate(text,text)``, and return the tool's name.

    Raises InvalidInputError, NotAllowedError.
    """
    return scalar("tool_register", locals())


def tool_unregister(name: str, *, scope: str = DEFAULT) -> Call[bool]:
    """Take a tool back, and tell whether there was one."""
    return scalar("tool_unregister", locals())
