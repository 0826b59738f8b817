"""What is known of how sure the answers were, and how right."""

from __future__ import annotations

from typing import Any

from mindful_client.calls.statement import Call, scalar


def confidence_report() -> Call[dict[str, Any]]:
    """Return what the views of confidence say of the caller's answers: lists of rows by name, None for empty ones."""
    return scalar("confidence_report", locals())
