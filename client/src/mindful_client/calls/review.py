"""Metacognition."""

from __future__ import annotations

from mindful_client.calls.statement import DEFAULT, Call, row
from mindful_client.types import ReviewDetail


def self_review(message_id: int, *, model: str | None = DEFAULT) -> Call[ReviewDetail]:
    """Have a generator look again at an answer of the assistant, and store the result.

    Raises NotFoundError (no such answer of yours), InvalidInputError.
    """
    return row("self_review", locals(), ReviewDetail)
