"""Lines for memory_import, from its own files and from conversations that other programs exported."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, Any
from uuid import UUID, uuid5

from mindful_client.files import LONGEST, UnreadableError

_ROLES = {
    "system": ("system", "developer"),
    "user": ("user", "human"),
    "assistant": ("assistant", "gpt", "chatgpt", "model", "bot", "ai"),
    "tool": ("tool", "function", "observation", "function_call"),
}
_ROLE_OF = {name: role for role, names in _ROLES.items() for name in names}
_NAMESPACE = UUID("6f1d2c1e-6d3b-4f0e-9a55-0f6f4c9a2f3b")
"""Namespace of conversation ids, so that a second import recognizes a conversation."""
_MILLISECONDS = 1e11
"""Times from here on are milliseconds. As seconds they would be after the year 5138."""
Json = Mapping[str, Any]


def read_lines(file: IO[bytes]) -> Iterator[Json]:
    """Read a file, with at most one line or conversation in memory. Raises UnreadableError."""
    values = _values(file)
    first = next(values, None)
    if first is None:
        raise UnreadableError("is empty")
    values = itertools.chain([first], values)
    if isinstance(first, Mapping) and "type" in first and "role" not in first:
        return values
    return _conversation_lines(values)


def _values(file: IO[bytes]) -> Iterator[Any]:
    """Yield the JSON values of a file: elements of an array, lines, or one object."""
    start = file.read(1 << 10).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    file.seek(3 if file.seek(0) == 0 and file.read(3) == b"\xef\xbb\xbf" else 0)
    if start == b"[":
        import ijson  # of the extra ingest, which lines need not

        try:
            yield from ijson.items(file, "item", use_float=True)
        except ijson.JSONError as error:
            raise UnreadableError(f"is broken JSON: {error}") from error
        return
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            value = _loaded(line)
        except ValueError as error:
            if number > 1:
                raise UnreadableError(f"line {number} is broken JSON: {error}") from error
            try:  # one object on several lines
                value = _loaded(line + file.read())
            except ValueError:
                raise UnreadableError(f"line 1 is broken JSON: {error}") from error
        yield value


def _loaded(line: bytes) -> Any:
    if b"\\u0000" in line:
        raise ValueError("it holds NUL, which PostgreSQL cannot store")
    try:
        return json.loads(line)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _conversation_lines(values: Iterator[Any]) -> Iterator[Json]:
    ids = itertools.count(1)
    for number, conversation in enumerate(_conversations(values), start=1):
        yield from _lines(number, conversation, ids)


def _conversations(values: Iterator[Any]) -> Iterator[Json]:
    """Yield each conversation. Messages without a conversation form one."""
    first = next(values)
    values = itertools.chain([first], values)
    if isinstance(first, Mapping) and _role(first) is not None:
        yield {"messages": list(values)}
        return
    for number, value in enumerate(values, start=1):
        if isinstance(value, Sequence) and not isinstance(value, str):
            yield {"messages": value}
        elif (
            isinstance(value, Mapping)
            and {"messages", "conversations", "conversation", "mapping"} & value.keys()
        ):
            yield value
        else:
            raise UnreadableError(f"element {number} is no conversation, and no line of an export")


def _lines(number: int, conversation: Json, ids: Iterator[int]) -> Iterator[Json]:
    messages = list(_messages(number, conversation))
    if not messages:
        return
    known = conversation.get("conversation_id") or conversation.get("id")
    name = str(known or hashlib.sha256(json.dumps(messages, sort_keys=True).encode()).hexdigest())
    session_id = str(uuid5(_NAMESPACE, name))
    title, created_at = conversation.get("title"), _time(conversation.get("create_time"))
    yield _line("session", session_id=session_id, title=title, created_at=created_at)
    for turn, message in enumerate(messages, start=1):
        yield _line("memory", id=next(ids), kind="message", session_id=session_id, turn=turn, **message)


def _line(line_type: str, **fields: Any) -> Json:
    return {"type": line_type} | {name: value for name, value in fields.items() if value is not None}


def _messages(number: int, conversation: Json) -> Iterator[dict[str, Any]]:
    found: Iterable[Any]
    if isinstance(conversation.get("mapping"), Mapping):
        found = _branch(conversation)
    else:
        keys = ("messages", "conversations", "conversation")
        found = next((conversation[key] for key in keys if conversation.get(key)), [])
    for place, message in enumerate(found, start=1):
        where = f"message {place} of conversation {number}"
        role = _role(message) if isinstance(message, Mapping) else None
        if role is None:
            raise UnreadableError(f"{where} has no role that is known")
        content = _content(message).replace("\0", "")
        if len(content.encode(errors="replace")) > LONGEST:
            raise UnreadableError(f"{where} has more than {LONGEST} bytes")
        if content.strip():  # programs leave empty messages where they keep states
            time = _time(message.get("create_time") or message.get("created_at") or message.get("timestamp"))
            yield {"role": role, "content": content, "created_at": time}


def _branch(conversation: Json) -> list[Json]:
    """Follow a tree of messages from the last one shown up to its root."""
    nodes, found = conversation["mapping"], list[Json]()
    key: Any = conversation.get("current_node") or next(reversed(nodes), None)
    seen = set[Any]()
    while isinstance(key, str) and isinstance(nodes.get(key), Mapping) and key not in seen:
        seen.add(key)
        if isinstance(nodes[key].get("message"), Mapping):
            found.append(nodes[key]["message"])
        key = nodes[key].get("parent")
    return found[::-1]


def _role(message: Json) -> str | None:
    author = message.get("author")
    name = (
        message.get("role")
        or message.get("from")
        or (author.get("role") if isinstance(author, Mapping) else author)
    )
    return _ROLE_OF.get(str(name).lower())


def _content(message: Json) -> str:
    content = message.get("content", message.get("value", message.get("text")))
    if isinstance(content, Mapping):
        content = content.get("parts") or content.get("text") or ""
    if isinstance(content, Sequence) and not isinstance(content, str):
        texts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
        return "\n\n".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _time(value: Any) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1000 if abs(value) >= _MILLISECONDS else value
        try:
            return datetime.fromtimestamp(seconds, UTC).isoformat()
        except (ValueError, OverflowError, OSError) as error:
            raise UnreadableError(f"has a time that cannot be: {value}") from error
    return value if isinstance(value, str) else None
