"""Settings chosen by replay on labelled questions."""

from __future__ import annotations

from mindful_client.calls.statement import DEFAULT, Call, rows, scalar
from mindful_client.types import AdaptationDetail


def confidence_adapt(
    *, model: str | None = DEFAULT, questions: int = DEFAULT, max_tokens: int = DEFAULT
) -> Call[list[AdaptationDetail]]:
    """Try other values of settings on labelled questions, and adopt those that do better on unseen ones.

    A change can be taken back with setting_undo. Raises InvalidInputError, NotFoundError.
    """
    return rows("confidence_adapt", locals(), AdaptationDetail)


def adaptation_work(*, tenants: int = DEFAULT) -> Call[int]:
    """Run confidence_adapt for those who have enough new labels; return how many.

    Raises InvalidInputError.
    """
    return scalar("adaptation_work", locals())


def adaptation_schedule(*, schedule: str | None = DEFAULT) -> Call[bool]:
    """Have pg_cron run adaptation_work at a schedule in crontab's form; None ends that.

    Raises NotReadyError (no pg_cron), NotAllowedError.
    """
    return scalar("adaptation_schedule", locals())
