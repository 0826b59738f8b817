"""A model without a ranking answers questions a few at a time, and its rankings are fitted to the answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from mindful.confidence.survey import model_calibrate, model_calibrate_some
from mindful.core.errors import InvalidParameterError, NotReadyError, NullValueError
from mindful.core.ports import Row
from unit.chat import chats
from unit.fakes import Answer, FakeDatabase, wrapped

PARIS = {"question": "What is the capital of France?", "answers": ["Paris"]}
ARES = {"question": "What is the capital of Mars?", "answers": ["Ares"]}
NOTED = PARIS | {"memories": ["Paris is the capital of France."]}
OTHER = ARES | {"memories": ["Phobos is a moon of Mars."]}


class Survey(FakeDatabase):
    """Keeps a model's answers, graded as equal texts, and its rankings."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.rankings: list[dict[str, Any]] = []
        model = chats.database(replies=[["capital of France", "Paris"]])
        known: dict[str, Answer] = {
            "select place from mindful.model_answer": self._of_survey,
            "insert into mindful.model_answer": self._insert,
            "select exists": lambda _, survey: [
                {"found": any(one["survey"] == survey for one in self.rankings)}
            ],
            "select with_memory, signals": self._of_survey,
            "insert into mindful.model_ranking": self._rank,
            "populate_recordset(null::mindful.generation": lambda rows: [
                {"id": at} for at, _ in enumerate(json.loads(rows))
            ],
            "_mindful.model_calibrate_some": lambda *given: [{"rest": self.some(*given)}],
        }
        super().__init__(known | model.answers)

    def some(self, name: str | None, gold: str | None, tier: int | None = 0, most: int = 16) -> int:
        found: int = wrapped(model_calibrate_some)(self, name, gold, tier, most)
        return found

    def _of_survey(self, _model: str, survey: str) -> Sequence[Row]:
        return [one for one in self.kept if one["survey"] == survey]

    def _insert(self, _model: str, survey: str, _questions: int, rows: str) -> Sequence[Row]:
        for row in json.loads(rows):
            signals = json.dumps(row["signals"])
            correct = row["answer"] in row["answers"]
            self.kept.append(row | {"survey": survey, "signals": signals, "correct": correct})
        return []

    def _rank(self, rows: str) -> Sequence[Row]:
        self.rankings += json.loads(rows)
        return []


def gold(*items: object) -> str:
    return json.dumps(items)


MIXED = gold(*[PARIS, ARES] * 20)


def test_some_questions_are_answered_at_a_time_and_the_rankings_are_fitted_at_the_end() -> None:
    db = Survey()
    assert [db.some("s", MIXED) for _ in range(3)] == [24, 8, 0]
    assert sorted(one["place"] for one in db.kept) == list(range(1, 41))
    (ranking,) = db.rankings
    assert (ranking["labels"], ranking["wrong"], ranking["sha256"]) == (40, 20, "cafe")
    assert (ranking["form"], ranking["with_memory"], ranking["signal_tier"]) == ("chat", False, 0)
    assert len(ranking["features"]) == len(ranking["weights"]) == len(ranking["means"])
    assert ranking["metrics"]["auroc"][0] > 0.9


def test_a_finished_survey_is_not_made_again() -> None:
    db = Survey()
    assert db.some("s", MIXED, most=40) == 0
    assert len(db.rankings) == 1
    assert db.some("s", MIXED) == 0
    assert (len(db.kept), len(db.rankings)) == (40, 1)
    db.rankings.clear()  # as where fitting was cancelled
    assert db.some("s", MIXED) == 0
    assert (len(db.kept), len(db.rankings)) == (40, 1)


def test_other_questions_are_another_survey() -> None:
    db = Survey()
    db.some("s", MIXED, most=40)
    assert db.some("s", gold(*[ARES, PARIS] * 20), most=40) == 0
    assert (len(db.kept), len(db.rankings)) == (80, 2)


def test_answers_from_memories_have_a_ranking_of_their_own() -> None:
    db = Survey()
    db.some("s", gold(*[PARIS, ARES] * 15, *[NOTED, OTHER] * 16), most=100)
    assert [(one["with_memory"], one["labels"], one["wrong"]) for one in db.rankings] == [
        (False, 30, 15),
        (True, 32, 16),
    ]
    assert "stated" in db.rankings[1]["features"]
    assert "stated" not in db.rankings[0]["features"]


@pytest.mark.parametrize(
    ("items", "right"),
    [([PARIS, ARES] * 14 + [PARIS], "15 of 29"), ([PARIS] * 40, "40 of 40"), ([ARES] * 40, "0 of 40")],
)
def test_a_ranking_needs_thirty_answers_right_and_wrong_ones(items: list[Row], right: str) -> None:
    with pytest.raises(NotReadyError, match=f"{right} answers are right"):
        Survey().some("s", gold(*items), most=100)


def test_each_part_is_a_transaction_of_its_own() -> None:
    db = Survey()
    wrapped(model_calibrate)(db, "s", MIXED, 0)
    assert len(db.rankings) == 1
    assert db.commits == 3  # one at the beginning


@pytest.mark.parametrize(
    ("name", "tier", "error"),
    [
        (None, 0, NullValueError),
        ("s", None, InvalidParameterError),
        ("s", -1, InvalidParameterError),
        ("s", 4, InvalidParameterError),
    ],
)
def test_a_name_and_a_tier_are_needed(name: str | None, tier: int | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        Survey().some(name, MIXED, tier)
