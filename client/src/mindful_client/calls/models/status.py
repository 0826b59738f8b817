"""Versions, slots and memory of the server."""

from __future__ import annotations

from mindful_client.calls.statement import Call, row, rows
from mindful_client.types import SlotHolder, StatusDetail


def mindful_status() -> Call[StatusDetail]:
    """Return versions, the tenant, and the memory and loaded models of the connection."""
    return row("mindful_status", locals(), StatusDetail)


def slot_status() -> Call[list[SlotHolder]]:
    """Return the processes that hold a slot for running a model, then those that wait. For administrators."""
    return rows("slot_status", locals(), SlotHolder)
