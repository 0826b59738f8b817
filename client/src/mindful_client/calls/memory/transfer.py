"""Export and import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mindful_client.calls.statement import DEFAULT, Call, Json, row, scalars
from mindful_client.types import ImportChange


def memory_export(
    *,
    kinds: Sequence[str] | None = DEFAULT,
    session_id: UUID | str | None = DEFAULT,
    source: str | None = DEFAULT,
    embeddings: bool = DEFAULT,
) -> Call[list[dict[str, Any]]]:
    """Return the memories, and the rows that refer to them, as objects for memory_import.

    The list has all of them. The command `mindful export` writes them one by one.
    """
    return scalars("memory_export", locals())


def memory_import(lines: Sequence[Json]) -> Call[ImportChange]:
    """Import the objects that memory_export returned, all or none, and return the number of new rows by type.

    The command `mindful import` reads files of any size.

    Raises InvalidInputError (with the number of the first invalid object).
    """
    return row("memory_import", locals(), ImportChange)
