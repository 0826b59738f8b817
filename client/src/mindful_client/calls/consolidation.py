"""Consolidation: facts drawn from what was said."""

from __future__ import annotations

from datetime import date

from mindful_client.calls.statement import DEFAULT, Call, Json, row
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
