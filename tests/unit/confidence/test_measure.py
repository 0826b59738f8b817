"""What another way gains on gold questions: which answers it is tried on, and what is stored of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mindful.confidence.action import Settings
from mindful.confidence.measure import action_evaluate
from mindful.conversation.prompt import Context
from mindful.core.errors import NotReadyError
from mindful.core.ports import Row
from unit.confidence.asked import CALIBRATED, answered, context_of, database
from unit.fakes import FakeDatabase, wrapped

SURE = CALIBRATED | {"threshold": 0.1}
UNSURE = CALIBRATED | {"threshold": 0.99}


def pending(number: int, right: bool, **known: Any) -> Row:
    """A flagged answer to a gold question."""
    return {
        "decision_id": 100 + number,
        "gold_id": number,
        "question": f"Question {number}?",
        "memories": [],
        "with_memory": False,
        "signals": json.dumps({"logprob_mean": -0.1}),
        "answer": "red fox",
        "correct": right,
    } | known


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    class Answering:
        """Composes prompts without recall."""

        model = "first"

        def __init__(self, db: FakeDatabase, *_: object) -> None:
            self._db = db

        def context(self, gold: Any) -> Context:
            return context_of(gold.question, *gold.memories or ())

        def call(self, _gold: object, context: Context) -> Any:
            return answered(self._db, context, "first")[0]

    monkeypatch.setattr("mindful.confidence.measure.Answering", Answering)

    def measured(rows: list[Row], labels: list[bool], calibrator: Row, action: str = "retry") -> FakeDatabase:
        given = iter(labels)
        db = database(
            {
                "_mindful.action_pending": rows,
                "_mindful.settings(null)": [
                    {"found": json.dumps(Settings()._asdict() | {"chat_retry_temperature": 0.5})}
                ],
                "insert into mindful.outcome": lambda ids, _: [{"correct": next(given)} for _ in ids],
                "insert into mindful.action_gain": [{"id": 1}],
            },
            calibrators={"first": calibrator, "first retry": SURE},
            first={"default": "red fox", "samples": ["blue whale"]},
        )
        wrapped(action_evaluate)(db, action, "first", 100, 16)
        return db

    return measured


def test_answers_are_tried_again_labeled_and_counted(run: Any) -> None:
    rows = [pending(1, right=False), pending(2, right=True), pending(3, right=False), pending(4, right=True)]
    db = run(rows, [True, False, False, True], UNSURE)
    [(action, model, temperature, *counts)] = db.arguments_of("insert into mindful.action_gain")
    assert (action, model, temperature) == ("retry", "first", 0.5)
    assert counts == [4, 4, 1, 1, 0.75, False]
    assert db.arguments_of("_mindful.action_pending") == [("retry", "first", 100)]
    stored = [json.loads(given[0])[0] for given in db.arguments_of("insert into mindful.decision")]
    assert [(row["parent_id"], row["gold_id"], row["answer"]) for row in stored] == [
        (100 + at, at, "blue whale") for at in (1, 2, 3, 4)
    ]
    assert all(row["total_ms"] > 0 for row in stored)


def test_an_answer_that_is_sure_by_now_is_not_tried_again(run: Any) -> None:
    db = run([pending(1, right=False), pending(2, right=True)], [], SURE)
    [(_, _, _, *counts)] = db.arguments_of("insert into mindful.action_gain")
    assert counts == [2, 0, 0, 0, 1.0, False]
    assert db.arguments_of("insert into mindful.decision") == []


def test_without_flagged_answers_there_is_nothing_to_measure(run: Any) -> None:
    with pytest.raises(NotReadyError, match='"first" has no flagged answers'):
        run([], [], UNSURE)


def test_recalling_has_no_temperature_and_is_tried_where_the_settings_would(run: Any) -> None:
    db = run([pending(1, right=True, signals=json.dumps({"logprob_mean": -0.1}))], [], UNSURE, "retrieve")
    [(action, _, temperature, *counts)] = db.arguments_of("insert into mindful.action_gain")
    assert (action, temperature, counts) == ("retrieve", None, [1, 0, 0, 0, 1.0, False])
