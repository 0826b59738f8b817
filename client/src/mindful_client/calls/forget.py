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
    keep: int | None = DEFAULT,
    kinds: Sequence[str] = DEFAULT,
    dry_run: bool = DEFAULT,
) -> Call[list[PruneDetail]]:
    """Return what a policy does not keep, least valuable first; with dry_run=False forget it.

    Raises InvalidInputError (no policy, or a bad one).
    """
    return rows("memory_prune", locals(), PruneDetail)


def retention_run() -> Call[list[ForgetCount]]:
    """Forget what the settings of retention no longer keep of the caller's memories."""
    return rows("retention_run", locals(), ForgetCount)


def retention_run_all() -> Call[list[ForgetCount]]:
    """Forget what the settings of retention no longer keep, for all; for administrators."""
    return rows("retention_run_all", locals(), ForgetCount)


def retention_work() -> Call[list[ForgetCount]]:
    """Do what workers do every day: an administrator's retention_run_all, or others' retention_run."""
    return rows("retention_work", locals(), ForgetCount)
