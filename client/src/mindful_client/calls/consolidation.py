"""Consolidation: facts drawn from what was said."""

from __future__ import annotations

from datetime import date

from mindful_client.calls.statement import DEFAULT, Call, Json, row, scalar
from mindful_client.types import ConsolidationDetail


def memory_consolidate(
    *,
    since: date | None = DEFAULT,
    limits: Json = DEFAULT,
    extractor: str | None = DEFAULT,
    model: str | None = DEFAULT,
) -> Call[ConsolidationDetail]:
    """Draw facts from messages and documents that were not read yet, link and promote them.

    Limits are memories and seconds; a run that they cut goes on with the next call. Extractors: rule, model.

    Raises InvalidInputError, UnavailableError (a run is going on).
    """
    return row("memory_consolidate", locals(), ConsolidationDetail)


def consolidation_work(*, everyone: bool = DEFAULT, tenants: int = DEFAULT) -> Call[int]:
    """Make the runs that are asked for, or everybody's; return how many.

    Raises InvalidInputError.
    """
    return scalar("consolidation_work", locals())


def consolidation_schedule(*, schedule: str | None = DEFAULT) -> Call[bool]:
    """Have pg_cron make runs, nightly at a schedule in crontab's form; None ends that.

    Raises NotReadyError (no pg_cron), NotAllowedError.
    """
    return scalar("consolidation_schedule", locals())
