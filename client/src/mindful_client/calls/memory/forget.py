"""Forgetting, and how long things are kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from mindful_client.calls.statement import DEFAULT, Call, Json, rows
from mindful_client.types import ForgetCount, ForgetFinding, PruneDetail


def memory_forget(
    *,
    ids: Sequence[int] | None = DEFAULT,
    session_id: UUID | str | None = DEFAULT,
    filter: Json | None = DEFAULT,
    everything: bool = DEFAULT,
    dry_run: bool = DEFAULT,
    copies: bool = DEFAULT,
) -> Call[list[ForgetCount]]:
    """Forget memories, a session, what a filter chooses, or everything, with all that hangs on it.

    What was remembered elsewhere too stays; with copies, exact duplicates go along.

    Raises NotFoundError, InvalidInputError (none or several of them, a bad filter).
    """
    return rows("memory_forget", locals(), ForgetCount)


def memory_forget_check(
    *, receipt_id: int | None = DEFAULT, ids: Sequence[int] | None = DEFAULT
) -> Call[list[ForgetFinding]]:
    """Return what is left of what was forgotten by a receipt, or of some ids; nothing is the proof.

    Raises NotFoundError (no such receipt), InvalidInputError.
    """
    return rows("memory_forget_check", locals(), ForgetFinding)


def memory_prune(
    *,
    older_than: timedelta | None = DEFAULT,
    unused_for: timedelta | None = DEFAULT,
    invalid_for: timedelta | None = DEFAULT,
    max_importance: float | None = DEFAULT,
    max_value: float | None = DEFAULT,
    max_count: int | None = DEFAULT,
    kinds: Sequence[str] = DEFAULT,
    dry_run: bool = DEFAULT,
) -> Call[list[PruneDetail]]:
    """Delete the memories that meet all given conditions, and return them, least valuable first.

    With dry_run=True, only return them.

    Raises InvalidInputError (no condition, or a value outside its range).
    """
    return rows("memory_prune", locals(), PruneDetail)


def retention_run() -> Call[list[ForgetCount]]:
    """Delete what the settings retention_* no longer keep, of the caller; an administrator's call, of all tenants."""
    return rows("retention_run", locals(), ForgetCount)
