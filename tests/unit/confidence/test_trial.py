"""Labels of a budget: how they are split, when they are tested, and what holds afterwards."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.confidence.calibrator import Calibrator
from mindful.confidence.promise import Promise
from mindful.confidence.threshold import Certified
from mindful.confidence.trial import Trial, coverage, parts, split, unit_of, used_of

NEVER: dict[str, Any] = {
    "id": None,
    "status": "collecting",
    "tested": None,
    "labels": 0,
    "value": None,
    "more_labels": None,
}
PASSED = Certified(0.7, 90, 2, 0.04, "certified")
FAILED = Certified(None, None, None, None, "too many are wrong", 40)
UNTRIED = Certified(None, None, None, None, "too few", 25, tested=False)
ONE = Calibrator(["logprob_sum"], [0.0], [1.0], [1.0], 0.0, [], [])


def trial(last: dict[str, Any], certified: Certified | None = None, rows: int = 10, run: int = 1) -> Trial:
    return Trial(Promise(0.1, 0.05, "answered"), [], [{}] * rows, NEVER | last, run, certified)


@pytest.mark.parametrize(
    ("last", "needed"),
    [
        ({}, 0),
        ({"id": 1, "labels": 20}, 21),
        ({"id": 1, "labels": 20, "tested": 20}, 30),
        ({"id": 1, "labels": 20, "tested": 21}, 32),
    ],
)
def test_a_test_waits_for_new_labels_and_for_half_as_many_more_after_one_that_looked(
    last: dict[str, Any], needed: int
) -> None:
    assert trial(last).needed == needed


@pytest.mark.parametrize(
    ("last", "certified", "news", "status", "more"),
    [
        ({}, None, False, "collecting", None),
        ({"more_labels": 30, "labels": 5}, None, False, "collecting", 25),
        ({"more_labels": 3, "labels": 5}, None, False, "collecting", 1),
        ({"id": 1, "more_labels": 3, "labels": 20}, None, False, "collecting", 13),
        ({}, PASSED, True, "certified", 0),
        ({}, FAILED, True, "infeasible", 40),
        ({"status": "certified", "value": 0.8}, PASSED, True, "certified", 0),
        ({"status": "certified", "value": 0.7}, PASSED, False, "certified", 0),
        ({"status": "certified", "value": 0.6}, PASSED, False, "certified", 0),
        ({"status": "certified", "value": 0.6}, FAILED, False, "certified", 0),
        ({"status": "certified", "value": 0.6}, None, False, "certified", 0),
    ],
)
def test_a_threshold_that_stands_gives_way_to_a_lower_one_only(
    last: dict[str, Any], certified: Certified | None, news: bool, status: str, more: int | None
) -> None:
    found = trial(last, certified)
    assert (found.news, found.status, found.more_labels) == (news, status, more)
    assert found.passed == (certified is PASSED)
    assert found.stands == (last.get("status") == "certified")
    assert found.holds["value"] == (certified.value if certified and news else last.get("value"))


@pytest.mark.parametrize(
    ("certified", "run", "spent"),
    [(None, 1, 0.0), (UNTRIED, 1, 0.0), (PASSED, 1, 0.0375), (FAILED, 2, 0.05 * (1 / 4 - 1 / 9))],
)
def test_only_a_test_that_looked_spends_of_delta(certified: Certified | None, run: int, spent: float) -> None:
    assert trial({}, certified, run=run).spent == pytest.approx(spent)


def row(at: int, question: str | None = None, **known: Any) -> dict[str, Any]:
    return {"source": f"session {at}", "question": question, "propensity": 1.0} | known


@given(st.lists(st.tuples(st.integers(0, 99), st.none() | st.sampled_from(["a", "b"])), max_size=60))
def test_labels_of_one_unit_stay_on_one_side_and_in_their_order(given: list[tuple[int, str | None]]) -> None:
    rows = [row(at, question) for at, question in given]
    for unit in ("source", "question"):
        fitted, tested = parts(rows, unit)
        assert not {unit_of(one, unit) for one in fitted} & {unit_of(one, unit) for one in tested}
        assert [one for one in rows if one in fitted] == fitted
        assert len(fitted) + len(tested) == len(rows)


def test_half_of_the_units_are_fitted_to_by_their_hash() -> None:
    fitted, tested = parts([row(at) for at in range(1000)], "source")
    assert 450 < len(fitted) < 550
    assert all(hashlib.md5(one["source"].encode()).digest()[0] < 128 for one in fitted)
    assert all(hashlib.md5(one["source"].encode()).digest()[0] >= 128 for one in tested)


def test_a_gold_question_is_its_own_unit_where_questions_are_drawn() -> None:
    assert [unit_of(row(3, "Who?"), unit) for unit in ("question", "source")] == ["Who?", "session 3"]
    assert unit_of(row(3), "question") == "session 3"


@pytest.mark.parametrize(("origin", "shipped"), [("shipped", True), ("fitted", False)])
def test_a_shipped_ranking_is_tested_on_all_labels(origin: str, shipped: bool) -> None:
    fields = ONE._asdict()
    used = used_of(
        fields | {"origin": origin, "metrics": '{"auroc": 1}', "unit": "source", "last_outcome": 4, "id": 9}
    )
    assert (used.calibrator, used.metrics, used.last_outcome, used.id) == (ONE, {"auroc": 1}, 4, 9)
    rows = [row(at) for at in range(100)]
    assert used.shipped == shipped
    assert split(rows, used) == (([], rows) if shipped else parts(rows, "source"))


def test_coverage_is_the_weighted_share_that_reaches_the_threshold() -> None:
    rows = [
        row(at, signals=json.dumps({"logprob_sum": signal}), propensity=propensity)
        for at, (signal, propensity) in enumerate([(0.0, 1.0), (5.0, 0.5), (-5.0, 0.25)])
    ]
    assert coverage(ONE, rows, 0.5) == pytest.approx((1 + 2) / 7)
    assert coverage(ONE, rows, 0.51) == pytest.approx(2 / 7)
    assert (coverage(ONE, rows, None), coverage(ONE, [], 0.5)) == (0.0, 0.0)
