"""Lists of messages as clients send them, checked, and their tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mindful.core.errors import ContextLengthError, InvalidParameterError
from mindful.core.jsontext import loads
from mindful.core.ports import Generator, Message
from mindful.generate.call import BLANK, check_length
from mindful.generate.sampling import parsed

OPENING, CLOSING = "<tool_call>\n", "\n</tool_call>"
"""What stands around a call, as the models know it that were taught to call functions (Qwen, Hermes)."""
_KEYS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "user"}
_LONGEST = 1 << 20
"""Bytes of all messages."""
_MOST = 10_000


class Conversation(NamedTuple):
    """Messages to be answered, or words to be continued."""

    messages: tuple[Message, ...]
    opening: str = ""
    """The assistant's words that the answer continues."""
    is_plain: bool = False
    """Whether the opening is a plain text, for which the model's chat template is not used."""

    def tokens(self, generator: Generator) -> list[int]:
        """Return the prompt's tokens."""
        if self.is_plain:
            return generator.tokenize(self.opening, opens=True)
        prompt = generator.encode(self.messages)
        return [*prompt, *generator.tokenize(self.opening)] if self.opening else prompt

    def next_tokens(self, generator: Generator, answer: str) -> list[int]:
        """Return what the prompt of the next turn begins with, if the client sends back the answer."""
        text = self.opening + answer
        if self.is_plain:
            return generator.tokenize(text, opens=True)
        return generator.encode([*self.messages, Message("assistant", text), Message("user", "")])


def conversation_of(text: str) -> Conversation:
    """Read messages: an array of them, or a string that is continued as it is."""
    if len(text.encode("utf-8", errors="replace")) > _LONGEST:
        raise ContextLengthError(f"messages have more than {_LONGEST} bytes", "Send fewer or shorter ones.")
    given = parsed("messages", text)
    if isinstance(given, str):
        if not given.strip(BLANK):
            raise InvalidParameterError(
                "messages is empty", "Give a text with at least one visible character."
            )
        check_length("messages", given)
        return Conversation((), given, is_plain=True)
    if not isinstance(given, list) or not given:
        raise InvalidParameterError(
            "messages is not an array of at least one message", 'Give [{"role": "user", "content": "Hello"}].'
        )
    if len(given) > _MOST:
        raise ContextLengthError(f"messages has {len(given)} elements, more than {_MOST}", "Send fewer.")
    messages = [_message(at, one) for at, one in enumerate(given)]
    opening: list[str] = []
    while messages and messages[-1].role == "assistant":
        opening.insert(0, messages.pop().content)
    return Conversation(tuple(messages), "\n\n".join(opening))


def _message(at: int, given: Any) -> Message:
    name = f"messages[{at}]"
    if not isinstance(given, dict):
        raise InvalidParameterError(f"{name} is not an object", "Give one with role and content.")
    present = {key: value for key, value in given.items() if value is not None}
    if unknown := sorted(present.keys() - _KEYS):
        raise InvalidParameterError(
            f"{name} has the member {unknown[0]}", f"Members are {', '.join(sorted(_KEYS))}."
        )
    role = present.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidParameterError(f"{name}.role is {json.dumps(role)}", f"Roles are {', '.join(_ROLES)}.")
    for key in ("name", "tool_call_id"):
        if not isinstance(present.get(key, ""), str):
            raise InvalidParameterError(f"{name}.{key} is not a text", "Give a string.")
    if "content" not in present and not (role == "assistant" and present.get("tool_calls")):
        raise InvalidParameterError(
            f"{name}.content is missing", "Give a text. Only an assistant's message with tool_calls has none."
        )
    content = "".join(_texts(f"{name}.content", present.get("content", "")))
    if role == "tool":
        content = f"<tool_response>\n{content}\n</tool_response>"
    elif isinstance(speaker := present.get("name"), str) and role == "user":
        content = f"{speaker}: {content}"
    calls = "\n".join(
        _call(f"{name}.tool_calls", call) for call in _array(name, present.get("tool_calls", []))
    )
    if calls and role != "assistant":
        raise InvalidParameterError(
            f"{name}.tool_calls is not the assistant's", "Only the assistant calls tools."
        )
    content = "\n".join(filter(None, [content, calls]))
    check_length(f"{name}.content", content)
    return Message(_ROLES[role], content)


def _array(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        raise InvalidParameterError(f"{name}.tool_calls is not an array", "Give an array of calls.")
    return value


def _texts(name: str, content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
        return
    if not isinstance(content, list):
        raise InvalidParameterError(
            f"{name} is not a text", "Give a string, or an array of parts of type text."
        )
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in ("text", "input_text", "output_text"):
            raise InvalidParameterError(f"{name} holds a part that is not a text", "Give parts of type text.")
        if not isinstance(part.get("text"), str):
            raise InvalidParameterError(f"{name} holds a part without a text", "Give each part a text.")
        yield part["text"]


def _call(name: str, call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidParameterError(f"{name} holds a call without a function's name", "Give function.name.")
    try:
        arguments = loads(function.get("arguments") or "{}")
    except (ValueError, TypeError, RecursionError):
        raise InvalidParameterError(
            f"{name} holds arguments that are not JSON", "Give them as JSON text."
        ) from None
    return call_text(function["name"], arguments)


def call_text(name: str, arguments: Any) -> str:
    """Write a call as a model writes it."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"{OPENING}{call}{CLOSING}"
