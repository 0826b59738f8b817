"""The audit's contents: what requests and answers said, without secrets and personal data. Off by default."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mindful_client.errors import InvalidInputError
from starlette.types import Message

_MOST_BYTES = 1 << 20
_MOST_CHARACTERS = 8000
"""Of a request and of an answer, the newest. Redaction takes about 25 ms for 1,000 characters, in a thread."""
_PATHS = ("/v1/", "/mcp")
_TEXTS = {"content", "text", "prompt", "input", "query", "documents", "instructions", "arguments", "delta"}
"""Members of bodies that hold texts of users and models."""
_ENDS = ("response.completed", "response.incomplete")


class Contents:
    """Keeps the bodies of one request and its answer until they are written."""

    def __init__(self) -> None:
        self._request = bytearray()
        self._answer = bytearray()

    @staticmethod
    def of(path: str) -> Contents | None:
        """Return what collects a request, None for paths whose bodies are not JSON."""
        return Contents() if path.startswith(_PATHS) else None

    def take(self, message: Message) -> None:
        """Add a part of the request or of the answer."""
        kept = self._request if message["type"] == "http.request" else self._answer
        kept += message.get("body", b"")[: _MOST_BYTES - len(kept)]

    def redacted(self) -> dict[str, str]:
        """Return the texts of both."""
        from mindful.learning.gate import redacted

        return {
            "request": redacted(_clipped(_json(bytes(self._request)))),
            "answer": redacted(_clipped(_events(bytes(self._answer)))),
        }


class Log:
    """Writes lines in their order, and redacts in a thread of its own."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._thread = ThreadPoolExecutor(1, "audit")

    def add(self, entry: dict[str, Any], contents: Contents | None) -> None:
        """Write an entry, with contents if there are any."""
        if contents is None:
            self._write(json.dumps(entry))
        else:
            self._thread.submit(self._add, entry, contents)

    def _add(self, entry: dict[str, Any], contents: Contents) -> None:
        try:
            said = contents.redacted()
        except Exception as error:  # contents are left out rather than written as they are
            said = {"error": type(error).__name__}
        self._write(json.dumps(entry | {"contents": said}, ensure_ascii=False))


def check() -> None:
    """Refuse to start without the libraries that find personal data."""
    from mindful.core.errors import MissingPackageError
    from mindful.learning.gate import redacted

    try:
        redacted("Some text.")
    except MissingPackageError as error:
        raise InvalidInputError(
            str(error), hint="Install pg-mindful[serve,learning], or leave out --audit-contents."
        ) from None


def _clipped(texts: Iterator[str]) -> str:
    joined = "\n".join(filter(None, texts))
    return joined if len(joined) <= _MOST_CHARACTERS else f"… {joined[-_MOST_CHARACTERS:]}"


def _json(body: bytes) -> Iterator[str]:
    try:
        yield from _texts(json.loads(body))
    except (ValueError, RecursionError):
        return


def _events(body: bytes) -> Iterator[str]:
    """Yield the texts of an answer; the parts of a stream are joined, as a number may be cut in two."""
    if not body.startswith((b"data:", b"event:", b":", b"id:")):
        yield from _json(body)
        return
    joined: list[str] = []
    for line in body.decode(errors="replace").splitlines():
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            if any(f'"type":"{end}"' in line for end in _ENDS):
                joined = []
            joined += _json(line[5:].encode())
    yield "".join(joined)


def _texts(value: Any, named: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        if named:
            yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one, named)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _texts(one, name in _TEXTS)
