"""How far answers can be trusted, learned from labels."""

from __future__ import annotations

from mindful_client.calls.statement import DEFAULT, Call, row, rows, scalar
from mindful_client.types import ActionGain, CalibrationDetail


def calibration_import(
    gold: str,
    *,
    model: str | None = DEFAULT,
    source: str = DEFAULT,
    memories: int = DEFAULT,
    max_tokens: int = DEFAULT,
    tier: int = DEFAULT,
) -> Call[int]:
    """Have a generator answer questions whose answers are known, grade it, and return how many there were.

    Gold is JSON Lines, one object a line with question and answers. Raises InvalidInputError (it names the broken
    line), NotFoundError (no such model).
    """
    return scalar("calibration_import", locals())


def calibrate(
    *,
    model: str | None = DEFAULT,
    error_budget: float = DEFAULT,
    delta: float = DEFAULT,
    budget_kind: str = DEFAULT,
) -> Call[list[CalibrationDetail]]:
    """Learn from labels how far a generator's answers can be trusted, and certify thresholds that keep a budget.

    Raises NotReadyError (no labels, too few, or of one kind only), InvalidInputError, NotFoundError.
    """
    return rows("calibrate", locals(), CalibrationDetail)


def action_measure(
    action: str, *, model: str | None = DEFAULT, answers: int = DEFAULT, max_tokens: int = DEFAULT
) -> Call[ActionGain]:
    """Try another way to an answer, retrieve or retry, on labelled questions, and tell whether it gains.

    Raises NotReadyError (no flagged answers to gold questions), InvalidInputError, NotFoundError.
    """
    return row("action_measure", locals(), ActionGain)
