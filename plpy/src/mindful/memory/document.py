"""Documents: texts that are stored in chunks. A new version replaces the chunks that changed."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from mindful.core.entry import sql_function, writing_function
from mindful.core.errors import ContextLengthError, InvalidParameterError, NullValueError
from mindful.core.pattern import linear
from mindful.core.ports import Database, Row
from mindful.generate.call import BLANK
from mindful.memory.split import FORMATS, Chunk, split
from mindful.models import runtime

_LONGEST = 1 << 24
"""Bytes of a document."""
_MAX_TOKENS = 240
"""Tokens of a chunk by default, even if the embedder reads more: recall finds short chunks better."""
_SMALLEST = 16
_SPECIAL = 2
"""Tokens that an embedder adds to a text."""
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
    """Store a document in chunks, and keep the chunks that the last version has too."""
    if content is None or source is None:
        raise NullValueError(f"{'content' if content is None else 'source'} is null", "Pass a text.")
    _check_content(content)
    if format not in FORMATS:
        raise InvalidParameterError(f"format is {format!r}", f"Formats are {', '.join(FORMATS)}.")
    db.rows(
        """select _mindful.document_source($1), _mindful.short_argument('title', $2), _mindful.metadata($3)""",
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


@sql_function
def row_parts(db: Database, contents: Sequence[str | None] | None) -> list[dict[str, Any]]:
    """Split texts that are longer than the default embedder reads. Blank texts have no parts."""
    given = [(number, text) for number, text in enumerate(contents or (), 1) if text and text.strip(BLANK)]
    # A token has at least one character, so short texts need no tokenizer.
    if all(len(text) <= _MAX_TOKENS for _, text in given):
        return [{"number": number, "part": 1, "parts": 1, "content": text} for number, text in given]
    longest, count = _measure(db)
    size = min(_MAX_TOKENS, longest)
    rows: list[dict[str, Any]] = []
    for number, text in given:
        parts = [text]
        if len(text) > size and count(text) > longest:
            _check_content(text)
            parts = [chunk.content for chunk in split(text, "prose", "", count, size, size // 10, db)]
        rows += [
            {"number": number, "part": part, "parts": len(parts), "content": content}
            for part, content in enumerate(parts, 1)
        ]
    return rows


def _check_content(content: str) -> None:
    if not content.strip(BLANK):
        raise InvalidParameterError("content is empty", "Pass a text with at least one visible character.")
    size = len(content.encode())
    if size > _LONGEST:
        raise ContextLengthError(
            f"content has {size} bytes, more than {_LONGEST}", "Split it into several documents."
        )


def _check_number(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidParameterError(f"{name} is {value}", f"Pass {name} between {low} and {high}.")


def _measure(db: Database) -> tuple[int, Callable[[str], int]]:
    """Return the number of tokens that the default embedder reads, and a function that counts tokens.

    The function looks for a cancel at each call.
    """
    rows = db.rows(
        """select m.name, m.context_length from _mindful.model_find('embedder', null) f
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
        # The text identifies a chunk, so a chunk that moves within the document stays the same memory.
        keys.append(digest if seen[digest] == 1 else f"{digest}-{seen[digest]}")
        place: dict[str, Any] = {
            "chunk": number,
            "chunks": len(chunks),
            "start": chunk.start,
            "end": chunk.end,
        }
        places.append(json.dumps(place if chunk.heading is None else {"heading": chunk.heading} | place))
    return db.one(
        "select * from _mindful.document_write($1, $2, $3, $4, $5, $6)",
        ("text", "text", "jsonb", "text[]", "text[]", "text[]"),
        (source, title, metadata, keys, [chunk.content for chunk in chunks], places),
    )
