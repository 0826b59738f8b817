"""Report on confidence and correctness."""

from __future__ import annotations

from typing import Any

from mindful_client.calls.statement import Call, scalar


def confidence_report() -> Call[dict[str, Any]]:
    """Return the rows of the confidence views about the tenant's answers, by view. Empty views are None."""
    return scalar("confidence_report", locals())
