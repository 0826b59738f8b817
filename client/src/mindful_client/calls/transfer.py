"""Export and import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from mindful_client.calls.statement import DEFAULT, Call, row, scalars
from mindful_client.types import ImportChange


def memory_export(
    *,
    kinds: Sequence[str] | None = DEFAULT,
    session_id: UUID | str | None = DEFAULT,
    source: str | None = DEFAULT,
    embeddings: bool = DEFAULT,
) -> Call[list[dict[str, Any]]]:
    """Return the caller's memories, and what belongs to them, as objects for memory_import.

    All are held at once; the command `mindful export` reads them as they come.
    """
    return scalars("memory_export", locals())


def memory_import(lines: str) -> Call[ImportChange]:
    """Import what memory_export wrote, from a table with one column of type jsonb; all or none.

    The command `mindful import` makes that table of a file.

    Raises InvalidInputError (naming the first line that is wrong), NotFoundError.
    """
    return row("memory_import", locals(), ImportChange)
