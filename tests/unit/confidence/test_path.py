"""Labels of answers that were flagged before count for the thresholds that they met."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from mindful.confidence import path
from unit.fakes import FakeDatabase

ASKED, SEARCHED = 11, 12
THRESHOLDS = {"asked": ASKED, "searched": SEARCHED}
KEY = ("m", "asked,searched", None, True, 0)


@pytest.fixture(autouse=True)
def _told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that is the probability."""
    monkeypatch.setattr(path, "Calibrator", lambda **_: SimpleNamespace(probability=lambda said: said["p"]))


def row(*attempts: tuple[str, float], signals: float = 0.9, **told: Any) -> dict[str, Any]:
    """Return an answer with the attempts before it, each with its probability."""
    before = [
        {"ways": ways, "second_model": None, "with_memory": True, "signals": {"p": p}, "signal_tier": 0}
        | told
        for ways, p in attempts
    ]
    return {"attempts": json.dumps(before), "signals": json.dumps({"p": signals})}


def find(*arguments: Any) -> list[dict[str, Any]]:
    """Every way has a threshold of 0.5; the second one is for answers that the first flagged."""
    found = THRESHOLDS.get(arguments[1])
    fitted: dict[str, Any] = dict.fromkeys(path.FITTED)
    return [fitted | {"threshold": 0.5, "threshold_id": found}] if found else []


def before(rows: Sequence[dict[str, Any]], key: tuple[Any, ...] = KEY) -> tuple[list[int], list[Any]]:
    found, kept = path.before(FakeDatabase({path.FIND: find}), key, rows, 0.1)
    return found, list(kept)


def test_the_path_that_most_answers_took_counts() -> None:
    twice = [row(("asked", 0.1), ("searched", 0.2)), row(("asked", 0.3), ("searched", 0.4))]
    once, passed, first = row(("asked", 0.1)), row(("asked", 0.1), ("searched", 0.5)), row()
    assert before([once, twice[0], passed, twice[1], first]) == ([ASKED, SEARCHED], twice)


def test_what_passed_a_threshold_is_no_label_of_a_later_one() -> None:
    assert before([row(("asked", 0.5)), row(("asked", 0.7))]) == ([], [])
    assert before([]) == ([], [])


def test_a_way_without_a_threshold_flags_nothing() -> None:
    rows = [row(("other", 0.1))]
    assert before(rows) == ([], rows)


@pytest.mark.parametrize(("next_way", "expected"), [("retrieve", [ASKED]), ("escalate", [ASKED, ASKED])])
def test_signals_of_a_higher_tier_are_judged_before_the_next_way_but_a_second_recall(
    next_way: str, expected: list[int]
) -> None:
    rows = [row(("asked", 0.1), signal_tier=2, next_way=next_way)]
    assert before(rows) == (expected, rows)


def test_an_answer_with_signals_of_a_higher_tier_was_judged_without_them() -> None:
    rows = [row(signals=0.2)]
    assert before(rows, ("m", "asked", None, True, 2)) == ([ASKED], rows)
