"""Consolidation: facts extracted from messages and documents."""

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
    """Extract facts from unread messages and documents, link and promote them.

    Limits are memories and seconds. The next call continues a limited run. Extractors: rule, model.

    Raises InvalidInputError, UnavailableError (another run is active).
    """
    return row("memory_consolidate", locals(), ConsolidationDetail)


def consolidation_run(*, all_unread: bool = DEFAULT, max_tenants: int = DEFAULT) -> Call[int]:
    """Run memory_consolidate for tenants with a requested run: all tenants if an administrator calls it.

    Returns the number of runs. With all_unread, tenants with unread texts have a run too.

    Raises InvalidInputError.
    """
    return scalar("consolidation_run", locals())


def consolidation_schedule(*, schedule: str | None = DEFAULT) -> Call[bool]:
    """Schedule consolidation_run with pg_cron, in crontab's format. None removes the schedule.

    Raises NotReadyError (no pg_cron), NotAllowedError.
    """
    return scalar("consolidation_schedule", locals())
