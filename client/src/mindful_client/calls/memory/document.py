"""Reference documents."""

from __future__ import annotations

from collections.abc import Sequence

from mindful_client.calls.statement import DEFAULT, Call, Json, row, rows, scalar
from mindful_client.types import DocumentChange, DocumentDetail


def document_insert(
    content: str,
    source: str,
    *,
    title: str | None = DEFAULT,
    format: str = DEFAULT,
    metadata: Json | None = DEFAULT,
    max_tokens: int | None = DEFAULT,
    overlap: int | None = DEFAULT,
) -> Call[DocumentChange]:
    """Remember a document in chunks, and say what changed where its source has come before.

    Formats: prose, markdown, code, auto (by the ending of source). Chunks with the same text stay the same memories.

    Raises InvalidInputError, AlreadyExistsError (source of other memories).
    """
    return row("document_insert", locals(), DocumentChange)


def document_insert_parts(
    source: str, parts: Sequence[Json], *, title: str | None = DEFAULT, metadata: Json | None = DEFAULT
) -> Call[DocumentChange]:
    """Remember a document in parts of the caller's own making: objects with key, content, heading, metadata.

    A part is known by its key, where its source has come before.

    Raises as document_insert, naming the element.
    """
    return row("document_insert_parts", locals(), DocumentChange)


def document_delete(source: str) -> Call[int]:
    """Forget a document with what was drawn from it alone, and return how many chunks it had.

    Raises NotFoundError.
    """
    return scalar("document_delete", locals())


def document_list(*, source: str | None = DEFAULT) -> Call[list[DocumentDetail]]:
    """Return the caller's documents by source, or the one of a source."""
    return rows("document_list", locals(), DocumentDetail)
