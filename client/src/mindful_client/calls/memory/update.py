"""What a memory rests on, and its versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mindful_client.calls.statement import DEFAULT, Call, Json, rows, scalar
from mindful_client.types import MemoryVersion


def memory_evidence_insert(id: int, source_id: int, quote: str) -> Call[bool]:
    """Say what a memory rests on, by words of its source, and return whether that is new.

    Raises NotFoundError, InvalidInputError (the source does not hold the quote).
    """
    return scalar("memory_evidence_insert", locals())


def memory_update(
    id: int,
    content: str,
    *,
    metadata: Json | None = DEFAULT,
    importance: float | None = DEFAULT,
    confidence: float | None = DEFAULT,
    level: str | None = DEFAULT,
    valid_from: datetime | None = DEFAULT,
    valid_to: datetime | None = DEFAULT,
    evidence: Sequence[Json] = DEFAULT,
) -> Call[int]:
    """Supersede a memory by a new text, and return the new memory's id; the old one is kept.

    Raises NotFoundError, InvalidInputError (a message too), NotReadyError (superseded already).
    """
    return scalar("memory_update", locals())


def memory_history(id: int) -> Call[list[MemoryVersion]]:
    """Return all versions of a memory, oldest first.

    Raises NotFoundError.
    """
    return rows("memory_history", locals(), MemoryVersion)
