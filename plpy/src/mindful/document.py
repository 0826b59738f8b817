"""Reference documents: texts that are remembered in parts, and kept in step with their source."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from mindful import runtime
from mindful.call import BLANK
from mindful.entry import writing_function
from mindful.errors import ContextLengthError, InvalidParameterError, NullValueError
from mindful.pattern import linear
from mindful.ports import Database, Row
from mindful.split import FORMATS, Chunk, split

_LONGEST = 1 << 24
"""Bytes of a document."""
_MAX_TOKENS = 240
"""Of a chunk, where the embedder would read more: what is said in few words is found by them."""
_SMALLEST = 16
_SPECIAL = 2
"""Tokens that an embedder puts around a text."""
_WORD = linear(r"\w+|[^\w\s]")


@writing_function
def document_insert(
    db: Database,
    content: str | None,
    source: str | None,
    title: str | None,
    format: str | None,  # noqa: A002  (the SQL function's name for it)
    metadata: str | None,
    max_tokens: int | None,
    overlap: int | None,
) -> Row:
    """Remember a document in chunks; those of its last version that are in this one too stay as they are."""
    if content is None or source is None:
        raise NullValueError(f"{'content' if content is None else 'source'} is null", "Give a text.")
    _check_content(content)
    if format not in FORMATS:
        raise InvalidParameterError(f"format is {format!r}", f"Formats are {', '.join(FORMATS)}.")
    db.rows(
        """select mindful._document_source($1), mindful._short_argument('title', $2), mindful._metadata($3)""",
        ("text", "text", "jsonb"),
        (source, title, metadata),
    )
    longest, count = _measure(db)
    size = min(_MAX_TOKENS, longest) if max_tokens is None else max_tokens
    _check_number("max_tokens", size, _SMALLEST, longest)
    shared = size // 10 if overlap is None else overlap
    _check_number("overlap", shared, 0, size // 2)
    chunks = split(content, format, source, count, size, shared, db)
    return _write(db, source, title, metadata, chunks)


def _check_content(content: str) -> None:
    if not content.strip(BLANK):
        raise InvalidParameterError("content is empty", "Give a text with at least one visible character.")
    size = len(content.encode())
    if size > _LONGEST:
        raise ContextLengthError(
            f"content has {size} bytes, more than {_LONGEST}", "Insert it as several documents."
        )


def _check_number(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidParameterError(f"{name} is {value}", f"It must be between {low} and {high}.")


def _measure(db: Database) -> tuple[int, Callable[[str], int]]:
    """Return how many tokens the default embedder reads, and what counts them, looking for a cancel meanwhile."""
    rows = db.rows(
        """select m.name, m.context_length from mindful._model_find('embedder', null) f
           join mindful.model m on m.name = f.name"""
    )
    if rows:
        count = runtime.embedder(db, rows[0]["name"])[1].count
        longest = (rows[0]["context_length"] or _LONGEST) - _SPECIAL
    else:
        count, longest = _words, _LONGEST

    def interruptible(text: str) -> int:
        db.check()
        return count(text)

    return longest, interruptible


def _words(text: str) -> int:
    return len(_WORD.findall(text))


def _write(
    db: Database, source: str, title: str | None, metadata: str | None, chunks: Sequence[Chunk]
) -> Row:
    seen = Counter[str]()
    keys, places = [], []
    for number, chunk in enumerate(chunks, start=1):
        digest = hashlib.md5(chunk.content.encode(), usedforsecurity=False).hexdigest()
        seen[digest] += 1
        # A chunk is known by its text, so it stays the same memory wherever the document's changes move it.
        keys.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
        place: dict[str, Any] = {
            "chunk": number,
            "chunks": len(chunks),
            "start": chunk.start,
            "end": chunk.end,
        }
        places.append(json.dumps(place if chunk.heading is None else {"heading": chunk.heading} | place))
    return db.one(
        "select * from mindful._document_write($1, $2, $3, $4, $5, $6)",
        ("text", "text", "jsonb", "text[]", "text[]", "text[]"),
        (source, title, metadata, keys, [chunk.content for chunk in chunks], places),
    )
