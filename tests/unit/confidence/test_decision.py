"""A probability meets a threshold, and a reason is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.confidence.decision import Decision, decide, decide_answer, record
from mindful.confidence.lineage import Lineage
from unit.confidence.asked import CALIBRATED, answered, context_of, database


def decided(signals: dict[str, float] | None = None, **calibrator: Any) -> Decision:
    db = database(calibrators={"m": CALIBRATED | calibrator})
    return decide(db, Lineage("m"), False, {"logprob_mean": 0.0} if signals is None else signals, 1, 0.2)


@given(st.integers(0, 50), st.integers(0, 50))
def test_without_a_calibrator_the_share_of_right_labels_is_the_probability(right: int, wrong: int) -> None:
    found = decide(database(labels=(right + wrong, right)), Lineage("m"), True, {})
    assert found.probability == pytest.approx((right + 1) / (right + wrong + 2))
    assert (found.action, found.calibrator_id, found.threshold, found.with_memory) == (
        "uncalibrated",
        None,
        None,
        True,
    )
    assert str(right + wrong) in found.reason


@pytest.mark.parametrize(
    ("threshold", "action"), [(0.88, "answer"), (0.8807, "answer"), (0.881, "flag"), (1.0, "flag")]
)
def test_an_answer_is_given_from_the_threshold_on(threshold: float, action: str) -> None:
    found = decided(threshold=threshold)  # 1 / (1 + exp(-2)) = 0.88079...
    assert found.probability == pytest.approx(0.880797)
    assert found.action == action
    assert (found.calibrator_id, found.threshold_id, found.threshold) == (7, 8, threshold)


def test_a_probability_that_is_the_threshold_reaches_it() -> None:
    found = decided({}, intercept=0.0, threshold=0.5)
    assert (found.probability, found.action) == (0.5, "answer")


def test_without_a_threshold_nothing_is_given() -> None:
    assert (decided(threshold=None).action, decided(threshold=None).reason) == ("flag", "certified")
    found = decided(threshold_id=None, threshold=None)
    assert found.action == "flag"
    assert "0.2" in found.reason


def test_what_a_label_calls_wrong_is_flagged_however_probable() -> None:
    assert decided({"lesson_same": -0.9}).action == "flag"
    assert decided({"lesson_same": 0.9}).action == "answer"
    assert decided({"lesson_same": 0.0}).action == "answer"


def test_signals_of_what_was_shown_and_recalled_are_added() -> None:
    db = database(first={"default": "red fox"})
    bare, shown = context_of("Which fox?"), context_of("Which fox?", "The red fox.")
    call, answer = answered(db, bare)
    without = decide_answer(db, call, bare, answer)
    assert (without.model, without.with_memory, without.generation_id) == ("first", False, 1)
    assert "coverage" not in without.signals
    assert without.signal_ms["free"] >= 0
    with_notes = decide_answer(db, call, shown, answer, Lineage("other"), known={"second_agreement": 1.0})
    assert (with_notes.model, with_notes.with_memory) == ("other", True)
    assert with_notes.signals["coverage"] == 0.5
    assert with_notes.signals["second_agreement"] == 1
    assert set(without.signals) < set(with_notes.signals)


def test_decisions_have_their_ids_in_order() -> None:
    db = database()
    assert record(db, [Decision("m", False, {}), Decision("m", True, {})]) == [1000, 1001]
