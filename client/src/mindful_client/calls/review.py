"""Metacognition."""

from __future__ import annotations

from mindful_client.calls.statement import DEFAULT, Call, row, scalar
from mindful_client.types import ReviewDetail


def self_review(message_id: int, *, model: str | None = DEFAULT) -> Call[ReviewDetail]:
    """Have a generator look again at an answer of the assistant, and store the result.

    Raises NotFoundError (no such answer of yours), InvalidInputError.
    """
    return row("self_review", locals(), ReviewDetail)


def review_label(message_id: int, correct: bool, *, note: str | None = DEFAULT) -> Call[int]:
    """Say whether an answer of the assistant was right, and return the label's id.

    Raises NotFoundError (no such answer of yours), InvalidInputError.
    """
    return scalar("review_label", locals())
