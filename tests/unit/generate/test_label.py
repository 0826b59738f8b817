from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.core.errors import InvalidParameterError, MindfulError, NullValueError
from mindful.generate import label
from unit.fakes import FakeDatabase
from unit.generate.test_llm import database, wrapped

NOTHING = {"descriptions": None, "examples": None, "classifier": None}
SCORES = st.lists(st.floats(-50, 0), min_size=1, max_size=9)


def many(db: FakeDatabase, contents: list[str | None] | None, labels: Any, **changed: Any) -> Any:
    arguments = {"instruction": None, "model": None, "subtract_prior": False} | changed
    return wrapped(label.llm_classify_many)(db, contents, labels, **NOTHING, **arguments)


@given(SCORES)
def test_probabilities_add_up_to_one_and_keep_the_order(scores: list[float]) -> None:
    found = label.softmax(scores)
    assert math.fsum(found) == pytest.approx(1)
    assert found[scores.index(max(scores))] == max(found)


def test_the_likeliest_label_is_chosen_and_null_stays_null() -> None:
    db = database(replies=[["Text: rain", "bad"]], default="good", logprob=math.log(0.75))
    rows = many(db, ["sun", None, "rain\n again"], ["good", "bad"])
    assert [row and row["label"] for row in rows] == ["good", None, "bad"]
    assert rows[2]["probability"] == pytest.approx(0.75)
    assert json.loads(rows[2]["probabilities"]) == pytest.approx({"good": 0.25, "bad": 0.75})
    assert wrapped(label.llm_classify)(db, "rain", ["good", "bad"], None, None, False, **NOTHING) == "bad"


def test_a_label_gains_nothing_by_being_common() -> None:
    rows = many(database(default="good"), ["sun"], ["good", "bad"], subtract_prior=True)
    assert rows[0]["probability"] == pytest.approx(0.5)


def test_texts_labels_and_conditions_are_one_line_each() -> None:
    db = database(
        replies=[["\nText: a b\nLabel:", "x"], ["\nText: a b\nStatement: c d\nLabel:", "true"]],
        default="y",
    )
    assert many(db, ["a\nb"], ["y", "x"])[0]["label"] == "x"
    assert wrapped(label.llm_if)(db, "a\nb", "c\nd", None) is True


def test_descriptions_and_examples_stand_before_the_text() -> None:
    form = label._Form(["y", "x"], "Choose.", {"x": "not\n y"}, [("a\nb", "y"), ("c", "x")])
    assert form.filled("d\ne") == (
        "Choose.\nLabels: y, x\n- x: not y\n\nText: a b\nLabel: y\n\nText: c\nLabel: x\n\nText: d e\nLabel:"
    )


def test_the_instruction_leads() -> None:
    db = database(replies=[["What is it?", "x"]], default="y")
    assert [many(db, ["a"], ["y", "x"], instruction=said)[0]["label"] for said in (None, "What is it?")] == [
        "y",
        "x",
    ]


@pytest.mark.parametrize(
    ("labels", "error"),
    [
        (None, NullValueError),
        (["a", None], NullValueError),
        ([], InvalidParameterError),
        (["a", " "], InvalidParameterError),
        (["a b", "c", "a\tb"], InvalidParameterError),
        ([["a"], ["b"]], InvalidParameterError),
        ([str(at) for at in range(256)], InvalidParameterError),
    ],
)
def test_labels_that_make_no_sense_are_refused(labels: Any, error: type[MindfulError]) -> None:
    with pytest.raises(error) as caught:
        many(database(), ["x"], labels)
    assert caught.value.hint


def test_nothing_asks_nothing() -> None:
    db = FakeDatabase({})
    assert many(db, None, ["a", "b"]) is None
    assert many(db, [None], ["a", "b"]) == [None]
    assert wrapped(label.llm_if)(db, None, "x", None) is wrapped(label.llm_if)(db, "x", None, None) is None
    assert db.asked == []
