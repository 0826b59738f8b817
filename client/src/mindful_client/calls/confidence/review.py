"""Self-review and labels of answers."""

from __future__ import annotations

from mindful_client.calls.statement import DEFAULT, Call, row, scalar
from mindful_client.types import ReviewDetail


def self_review(message_id: int, *, model: str | None = DEFAULT) -> Call[ReviewDetail]:
    """Have a generator judge an answer of the assistant, and store the review.

    Raises NotFoundError (no such answer of yours), InvalidInputError.
    """
    return row("self_review", locals(), ReviewDetail)


def answer_label(message_id: int, correct: bool, *, note: str | None = DEFAULT) -> Call[int]:
    """Label an answer of the assistant as right or wrong, and return the label's id.

    Raises NotFoundError (no such answer of yours), InvalidInputError.
    """
    return scalar("answer_label", locals())
