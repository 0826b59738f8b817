"""Tuning of settings on labeled questions."""

from __future__ import annotations

from mindful_client.calls.statement import DEFAULT, Call, rows, scalar
from mindful_client.types import TuningDetail


def confidence_tune(
    *, model: str | None = DEFAULT, max_questions: int = DEFAULT, max_tokens: int = DEFAULT
) -> Call[list[TuningDetail]]:
    """Try other values of settings on labeled questions, and adopt those that do better on newer ones.

    setting_undo reverts a change. Raises InvalidInputError, NotFoundError.
    """
    return rows("confidence_tune", locals(), TuningDetail)


def tuning_run(*, max_tenants: int = DEFAULT) -> Call[int]:
    """Run confidence_tune for tenants with 30 new labels: all tenants if an administrator calls it.

    Returns the number of tenants.

    Raises InvalidInputError.
    """
    return scalar("tuning_run", locals())


def tuning_schedule(*, schedule: str | None = DEFAULT) -> Call[bool]:
    """Schedule tuning_run with pg_cron, in crontab's format. None removes the schedule.

    Raises NotReadyError (no pg_cron), NotAllowedError.
    """
    return scalar("tuning_schedule", locals())
