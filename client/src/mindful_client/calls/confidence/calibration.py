"""Calibration of confidence by labels."""

from __future__ import annotations

from collections.abc import Sequence

from mindful_client.calls.statement import DEFAULT, Call, Json, row, rows, scalar
from mindful_client.types import ActionGain, CalibrationDetail


def gold_evaluate(
    gold: Sequence[Json],
    *,
    model: str | None = DEFAULT,
    source: str = DEFAULT,
    memories: int = DEFAULT,
    max_tokens: int = DEFAULT,
    signal_tier: int = DEFAULT,
) -> Call[int]:
    """Have a generator answer gold questions, grade its answers, and return their number.

    Each question is a mapping with question (a text) and answers (a list of texts). It may have memories and source.
    Raises InvalidInputError (with the number of the invalid item), NotFoundError (no such model).
    """
    return scalar("gold_evaluate", locals())


def calibrate(
    *,
    model: str | None = DEFAULT,
    error_budget: float = DEFAULT,
    delta: float = DEFAULT,
    budget_kind: str = DEFAULT,
) -> Call[list[CalibrationDetail]]:
    """Fit a generator's calibrators to its labels, and certify thresholds that keep the error budget.

    Raises NotReadyError (too few labels, or labels of one kind only), InvalidInputError, NotFoundError.
    """
    return rows("calibrate", locals(), CalibrationDetail)


def action_evaluate(
    action: str, *, model: str | None = DEFAULT, max_answers: int = DEFAULT, max_tokens: int = DEFAULT
) -> Call[ActionGain]:
    """Try another way to an answer, retrieve or retry, on gold questions, and return what it gained.

    Raises NotReadyError (no flagged answers to gold questions), InvalidInputError, NotFoundError.
    """
    return row("action_evaluate", locals(), ActionGain)
