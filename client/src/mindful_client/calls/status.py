"""What mindful runs on."""

from __future__ import annotations

from mindful_client.calls.statement import Call, row, rows
from mindful_client.types import SlotHolder, StatusDetail


def mindful_status() -> Call[StatusDetail]:
    """Tell versions, whose memories the caller sees, and what the connection holds in memory."""
    return row("mindful_status", locals(), StatusDetail)


def slot_status() -> Call[list[SlotHolder]]:
    """Return the processes that hold a slot for running a model, then those that wait. For administrators."""
    return rows("slot_status", locals(), SlotHolder)
