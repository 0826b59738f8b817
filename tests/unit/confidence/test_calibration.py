"""Calibration: which labels are fitted to, what is adopted, which threshold is certified."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from mindful.confidence.calibration import calibrate
from mindful.confidence.trial import parts
from mindful.confidence.tune import Knob, Trial, Tuning, _tuned
from mindful.core.errors import NotReadyError
from mindful.core.ports import Row
from unit.fakes import FakeDatabase, scripted, wrapped


def labels(count: int, slope: float = 3.0, first: int = 0, **changed: Any) -> list[Row]:
    """Answers whose log-odds of being right grow with their log-probability."""
    random = np.random.default_rng(count + first)
    signal = random.normal(size=count)
    right = random.random(count) < 1 / (1 + np.exp(-slope * signal))
    return [
        {
            "outcome_id": first + at,
            "signals": json.dumps({"logprob_sum": float(signal[at]), "log_tokens": 1.0}),
            "correct": bool(right[at]),
            "propensity": 1.0,
            "source": f"source {first + at}",
            "question": None,
            "attempts": "[]",
            "signal_tier": 0,
        }
        | changed
        for at in range(count)
    ]


def fitting(row: Row) -> bool:
    """Tell whether a label belongs to the fit."""
    return bool(parts([row], "source")[0])


NEVER = dict.fromkeys(
    ("id", "status", "value", "bound", "labels", "reason", "more_labels", "alarm", "tested", "last_outcome")
)
"""What is known of a budget that was never tested."""


class Labels(FakeDatabase):
    """Labels of one model, without memories unless they are given, and what is fitted to them."""

    def __init__(
        self,
        rows: Sequence[Row],
        runs: int = 0,
        held: Sequence[Row] = (),
        tiers: Sequence[int] = (0,),
        last: Row | None = None,
    ) -> None:
        self.fitted: list[dict[str, Any]] = []
        self.certified: list[dict[str, Any]] = []
        self.given = rows
        self.tiers = tiers
        super().__init__(
            {
                "_mindful.lineage_list": [{"ways": [], "second_model": None}],
                "_mindful.labeled(": self.labeled,
                "insert into mindful.calibrator": self.fit,
                "as runs": [NEVER | {"runs": runs} | dict(last or {})],
                "insert into mindful.threshold (calibrator_id, budget_kind, budget, delta, run, value": [],
                "insert into mindful.threshold": self.certify,
                "select id, unit, origin": held,
                "_mindful.calibrator_find": [],
            },
            scripted(first={}),
        )

    def labeled(
        self, _model: str, _ways: Sequence[str], _second: str | None, with_memory: bool, tier: int
    ) -> Sequence[Row]:
        """Give the labels of one cell."""
        return self.given if not with_memory and tier in self.tiers else []

    def fit(self, text: str) -> Sequence[Row]:
        """Keep a calibrator."""
        self.fitted.append(json.loads(text))
        return [{"id": 40 + len(self.fitted)}]

    def certify(self, text: str) -> Sequence[Row]:
        """Keep a threshold."""
        self.certified.append(json.loads(text))
        return [{"id": 80 + len(self.certified)}]

    def calibrated(self, budget: float = 0.2, kind: str = "answers") -> list[Row]:
        """Calibrate."""
        rows: list[Row] = wrapped(calibrate)(self, None, budget, 0.1, kind)
        return rows


def test_a_calibrator_is_fitted_to_one_half_and_its_threshold_tested_on_the_other() -> None:
    rows = labels(600)
    db = Labels(rows)
    (found,) = db.calibrated()
    (fitted,), certified = db.fitted, db.certified[-1]
    half = sum(map(fitting, rows))
    assert 240 < half < 360
    assert (fitted["labels"], certified["labels"], found["labels"]) == (half, 600 - half, 600)
    assert fitted["wrong"] == sum(not row["correct"] for row in rows if fitting(row))
    assert found["wrong"] == sum(not row["correct"] for row in rows)
    assert fitted["adopted"] is True
    assert fitted["last_outcome"] == 599
    assert fitted["supersedes"] is None
    assert (found["calibrator_id"], found["threshold_id"], found["status"]) == (41, 85, "certified")
    assert found["threshold"] == certified["value"]
    assert certified["bound"] == found["bound"] <= 0.2
    assert (certified["run"], certified["budget"], certified["delta"], certified["budget_kind"]) == (
        1,
        0.2,
        0.1,
        "answers",
    )
    assert certified["delta_spent"] == found["delta_spent"] == pytest.approx(0.075)
    assert 0.2 < found["coverage"] < 0.8
    assert json.loads(found["metrics"])["auroc"][0] > 0.8


def test_a_ladder_of_budgets_is_certified_in_one_call() -> None:
    (found,) = Labels(labels(600)).calibrated(0.25)
    ladder = json.loads(found["ladder"])
    assert [step["budget"] for step in ladder] == [0.05, 0.1, 0.2, 0.25, 0.3, 0.5]
    assert [step["status"] for step in ladder if step["budget"] >= 0.2] == ["certified"] * 4
    coverage = [step["coverage"] for step in ladder]
    assert coverage == sorted(coverage)
    assert found["coverage"] == ladder[3]["coverage"]
    assert "is kept" not in (found["reason"] or "")
    (found,) = Labels(labels(600)).calibrated(0.02)
    kept = min(step["budget"] for step in json.loads(found["ladder"]) if step["threshold"] is not None)
    assert found["threshold"] is None
    assert found["reason"].endswith(f"; {kept} is kept: SELECT setting_set('error_budget', {kept})")


def test_a_later_test_spends_less_of_delta() -> None:
    last = {
        "id": 70,
        "status": "infeasible",
        "labels": 50,
        "tested": 50,
        "more_labels": None,
        "reason": "x",
        "value": None,
    }
    db = Labels(labels(200), runs=2, last=last)
    db.calibrated()
    certified = db.certified[-1]
    assert certified["run"] == 3
    assert certified["delta_spent"] == pytest.approx(0.1 * (1 / 9 - 1 / 16))
    assert certified["supersedes"] == 70


def test_a_call_without_new_labels_tests_nothing_and_spends_nothing() -> None:
    rows = labels(200)
    tested = sum(not fitting(row) for row in rows)
    last = {
        "id": 70,
        "labels": tested,
        "tested": tested,
        "more_labels": None,
        "reason": "as before",
        "bound": 0.1,
    }
    for status, value in (("certified", 0.7), ("infeasible", None)):
        db = Labels(rows, runs=1, held=held(199), last=last | {"status": status, "value": value})
        (found,) = db.calibrated()
        assert db.certified == db.fitted == []
        assert (found["status"], found["threshold"], found["threshold_id"]) == (status, value, 70)
        assert found["delta_spent"] == 0
        assert found["reason"] == "as before"


def test_a_test_that_fails_withdraws_nothing() -> None:
    last = {
        "id": 70,
        "status": "certified",
        "value": 0.7,
        "bound": 0.1,
        "labels": 9,
        "tested": 9,
        "reason": "kept",
    }
    last |= {"last_outcome": 999, "more_labels": 0}
    db = Labels(labels(200, slope=-3.0), runs=1, held=held(199), last=last)
    (found,) = db.calibrated()
    assert (found["status"], found["threshold"], found["threshold_id"]) == ("certified", 0.7, 70)
    assert db.certified == []


def test_a_new_calibrator_that_certifies_less_is_not_adopted() -> None:
    last = {
        "id": 70,
        "status": "certified",
        "value": 0.7,
        "bound": 0.01,
        "labels": 900,
        "tested": 900,
        "reason": "x",
    }
    db = Labels(labels(200), held=held(100, weight=-3.0), last=last)
    (found,) = db.calibrated(0.02)
    assert [one["adopted"] for one in db.fitted] == [False]
    assert (found["calibrator_id"], found["threshold_id"]) == (30, 70)


@pytest.mark.parametrize("source", ["one file", "Ann"])
def test_gold_from_one_source_is_split_by_question(source: str) -> None:
    rows = [
        dict(row) | {"source": f"gold {source}", "question": f"question {at}"}
        for at, row in enumerate(labels(300))
    ]
    db = Labels(rows)
    (found,) = db.calibrated()
    assert db.fitted[0]["unit"] == "question"
    assert found["status"] == "certified"


def test_many_sources_are_kept_whole() -> None:
    rows = [
        dict(row) | {"source": f"gold {at % 40}", "question": f"question {at}"}
        for at, row in enumerate(labels(400))
    ]
    db = Labels(rows)
    db.calibrated()
    assert db.fitted[0]["unit"] == "source"
    assert db.fitted[0]["labels"] % 10 == 0


def test_labels_of_few_sessions_are_fitted_without_a_crash() -> None:
    rows = [dict(row) | {"source": f"session {at % 3}"} for at, row in enumerate(labels(100))]
    assert {fitting(row) for row in rows} == {True, False}
    (found,) = Labels(rows).calibrated()
    assert found["status"] == "infeasible"
    assert "independent ones, as labels of a session are alike" in found["reason"]


def test_a_threshold_is_tested_on_the_answers_that_come_to_it() -> None:
    rows = [dict(row) | {"signal_tier": 2} for row in labels(600)]
    first = dict(held(0)[0]) | {"threshold_id": 90, "threshold": 0.8}

    class Tiers(Labels):
        def found(self, *key: Any) -> Sequence[Row]:
            return [first] if key[4] == 0 else []

    db = Tiers(rows, tiers=(0, 2))
    db.answers["_mindful.calibrator_find"] = db.found
    db.calibrated()
    (of_all,) = [one for one in db.certified if one["budget"] == 0.3 and one["after"] == []]
    (of_flagged,) = [one for one in db.certified if one["budget"] == 0.3 and one["after"] == [90]]
    flagged = [
        row
        for row in rows
        if not fitting(row) and 1 / (1 + np.exp(-3 * json.loads(row["signals"])["logprob_sum"])) < 0.8
    ]
    assert of_all["labels"] == sum(not fitting(row) for row in rows)
    assert of_flagged["labels"] == len(flagged)


def test_ten_labels_drawn_by_chance_do_not_undo_six_hundred_others() -> None:
    gold, chance = labels(600), labels(10, first=600, propensity=0.05)
    (alone,), (together,) = Labels(gold).calibrated(0.2), Labels([*gold, *chance]).calibrated(0.2)
    assert together["status"] == "certified"
    assert together["coverage"] > 0.9 * alone["coverage"]


def test_a_budget_that_cannot_be_met_covers_nothing() -> None:
    db = Labels(labels(60))
    (found,) = db.calibrated(0.02)
    assert (found["status"], found["threshold"], found["coverage"]) == ("infeasible", None, 0)
    assert db.certified[-1]["status"] == "infeasible"
    assert (db.certified[-1]["delta_spent"], found["delta_spent"]) == (0, 0)  # nothing was looked at
    assert found["more_labels"] > 60


def test_a_budget_over_all_questions_lets_more_through() -> None:
    (answers,), (questions,) = (
        Labels(labels(600)).calibrated(0.1, kind) for kind in ("answers", "questions")
    )
    assert questions["coverage"] > answers["coverage"]


def held(last_outcome: int, weight: float = 3.0) -> list[Row]:
    return [
        {
            "id": 30,
            "unit": "source",
            "origin": "labels",
            "adopted": True,
            "metrics": '{"auroc": [0.5]}',
            "last_outcome": last_outcome,
            "features": ["logprob_sum"],
            "means": [0.0],
            "scales": [1.0],
            "weights": [weight],
            "intercept": 0.0,
            "knots_x": [],
            "knots_y": [],
        }
    ]


@pytest.mark.parametrize(("new", "fitted"), [(19, 0), (20, 1)])
def test_the_one_in_force_stays_until_there_are_enough_new_labels(new: int, fitted: int) -> None:
    rows = labels(600)
    seen = [row["outcome_id"] for row in rows if fitting(row)][-new - 1]
    last = {
        "id": 70,
        "status": "certified",
        "value": 0.9,
        "bound": 0.1,
        "labels": 900,
        "tested": 900,
        "reason": "x",
    }
    db = Labels(rows, held=held(seen), last=last | {"last_outcome": 600})
    (found,) = db.calibrated()
    assert len(db.fitted) == fitted
    assert found["calibrator_id"] == 30
    assert all(one["supersedes"] == 30 and not one["adopted"] for one in db.fitted)
    assert json.loads(found["metrics"]) == {"auroc": [0.5]}


def test_a_better_one_takes_the_place_of_the_one_in_force() -> None:
    db = Labels(labels(600), held=held(300, weight=-3.0))
    (found,) = db.calibrated()
    assert (found["calibrator_id"], db.fitted[0]["adopted"], db.fitted[0]["supersedes"]) == (41, True, 30)


CERTIFIED = {
    "id": 70,
    "status": "certified",
    "value": 0.7,
    "bound": 0.2,
    "labels": 900,
    "tested": 900,
    "reason": "x",
}


@pytest.mark.parametrize(("last", "adopted"), [(None, True), (CERTIFIED, False)])
def test_one_that_orders_no_better_is_adopted_if_it_is_the_first_to_certify(
    last: Row | None, adopted: bool
) -> None:
    db = Labels(labels(600), held=held(300), last=last)
    (found,) = db.calibrated(0.3)
    assert [one["adopted"] for one in db.fitted] == [adopted]
    assert (found["calibrator_id"] == 30) != adopted


@pytest.mark.parametrize(
    "rows",
    [
        [],
        labels(29),
        [dict(row) | {"correct": True} for row in labels(100)],
        [dict(row) | {"correct": False} for row in labels(100)],
        [dict(row) | {"correct": fitting(row)} for row in labels(100)],
        [dict(row) | {"source": "one session"} for row in labels(100)],
    ],
)
def test_what_cannot_be_calibrated_is_said(rows: list[Row]) -> None:
    db = Labels(rows)
    with pytest.raises(NotReadyError):
        db.calibrated()
    assert db.fitted == db.certified == []


def test_thirty_labels_are_enough() -> None:
    assert Labels(labels(30)).calibrated()[0]["calibrator_id"] == 41


def test_a_tier_is_calibrated_where_some_answer_has_its_signals() -> None:
    rows = labels(100)
    assert len(Labels(rows, tiers=(0, 1)).calibrated()) == 1
    mixed = [dict(row) | {"signal_tier": at % 2} for at, row in enumerate(rows)]
    assert [row["signal_tier"] for row in Labels(mixed, tiers=(0, 1, 2)).calibrated()] == [0, 1]


class Coins(Knob):
    """A setting whose values are right with these probabilities."""

    key = "coins"

    def __init__(
        self, db: FakeDatabase, shares: dict[int, float], count: int = 300, questions: int = 1000
    ) -> None:
        self.shares, self.count = shares, count
        super().__init__(db, "m", questions)

    def _rows(self) -> Sequence[Row]:
        return [{"outcome_id": at} for at in range(self.count)]

    def values(self) -> Sequence[int]:
        """List them."""
        return [value for value in self.shares if value < 10]

    def trial(self, value: Any, rows: Sequence[Row], older: Sequence[Row]) -> Trial:
        """Toss them."""
        random = np.random.default_rng(len(rows) * 100 + value)
        return Trial([float(random.random() < self.shares[value]) for _ in rows], [], [1.0 for _ in rows])


def state(value: int, by_hand: bool = False, seen: int | None = None) -> FakeDatabase:
    return FakeDatabase(
        {
            "_mindful.tuning_current": [{"value": str(value), "by_hand": by_hand}],
            "as last from mindful.tuning": [{"last": seen}],
        }
    )


def tuned(shares: dict[int, float], value: int = 0, by_hand: bool = False, **changed: Any) -> Tuning:
    db = state(value, by_hand)
    return _tuned(db, Coins(db, shares, **changed))


def test_what_does_better_on_the_older_labels_is_tested_on_the_newer() -> None:
    found = tuned({0: 0.2, 1: 0.9, 2: 0.5})
    assert (found.key, found.current_value, found.candidate, found.adopted) == ("coins", 0, 1, True)
    assert found.evidence["labels"] == [200, 100]
    assert set(found.evidence["chosen"]) == {"0", "1", "2"}
    assert set(found.evidence["tested"]) == {"0", "1"}
    assert found.evidence["p"] < 0.05


def test_what_does_no_better_on_the_newer_is_not_adopted() -> None:
    found = tuned({0: 0.5, 1: 0.52})
    assert found.adopted is False
    assert (found.candidate is None) == ("tested" not in found.evidence)


def test_of_equals_the_one_in_force_stays() -> None:
    found = tuned({0: 1.0, 1: 1.0, 2: 1.0}, value=2)
    assert (found.candidate, found.adopted) == (None, False)
    assert "tested" not in found.evidence


def test_a_value_in_force_that_is_none_of_the_usual_is_tried_too() -> None:
    found = tuned({0: 0.1, 12: 0.9}, value=12)
    assert set(found.evidence["chosen"]) == {"0", "12"}
    assert found.candidate is None


def test_what_was_set_by_hand_is_left_alone_and_too_few_labels_choose_nothing() -> None:
    assert tuned({0: 0.1, 1: 0.9}, by_hand=True).evidence == {}
    assert tuned({0: 0.1, 1: 0.9}, count=87).evidence == {}
    assert tuned({0: 0.1, 1: 0.9}, count=90).evidence["labels"] == [60, 30]


def test_a_later_choice_is_tested_on_what_came_since() -> None:
    db = state(0, seen=219)
    knob = Coins(db, {0: 0.5})
    assert (len(knob.older), len(knob.newer)) == (220, 80)
    few = Coins(db, {0: 0.5}, questions=50)
    assert [row["outcome_id"] for row in few.older] == list(range(170, 220))
    assert [row["outcome_id"] for row in few.newer] == list(range(250, 300))
