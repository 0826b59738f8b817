"""Memories by id."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from mindful_client.calls.statement import DEFAULT, Call, Json, row, rows
from mindful_client.types import MemoryDetail


def memory_get(id: int) -> Call[MemoryDetail]:
    """Return a memory by its id.

    Raises NotFoundError, InvalidInputError.
    """
    return row("memory_get", locals(), MemoryDetail)


def memory_list(
    *,
    kinds: Sequence[str] | None = DEFAULT,
    metadata: Json | None = DEFAULT,
    session_id: UUID | str | None = DEFAULT,
    as_of: datetime | None = DEFAULT,
    before_id: int | None = DEFAULT,
    max_count: int = DEFAULT,
) -> Call[list[MemoryDetail]]:
    """Return memories by id, newest first, with the filters of memory_recall.

    Pass the last id of a page as before_id to get the next page. as_of=None returns all versions.

    Raises InvalidInputError.
    """
    return rows("memory_list", locals(), MemoryDetail)
