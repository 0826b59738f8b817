"""What mindful runs on."""

from __future__ import annotations

from mindful_client.calls.statement import Call, row
from mindful_client.types import StatusDetail


def mindful_status() -> Call[StatusDetail]:
    """Tell versions, whose memories the caller sees, and what the connection holds in memory."""
    return row("mindful_status", locals(), StatusDetail)
