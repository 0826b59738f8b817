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


def test_many_texts_are_judged_in_their_order_and_null_stays_null() -> None:
    db = database(replies=[["Text: rain", "true"]], default="false")
    judge = wrapped(label.llm_if_many)
    assert judge(db, ["sun", None, "rain"], "It is wet.", None) == [False, None, True]
    assert judge(db, [None], "It is wet.", None) == [None]
    assert judge(db, [], "It is wet.", None) == []
    assert judge(db, None, "It is wet.", None) is judge(db, ["rain"], None, None) is None
    assert wrapped(label.llm_if)(db, None, "It is wet.", None) is None
    assert wrapped(label.llm_if)(db, "rain", None, None) is None


@pytest.mark.parametrize(
    "descriptions", ["[]", "3", "null", '{"a": 1}', '{"a": null}', '{"a": "b", "c": ["d"]}']
)
def test_descriptions_are_an_object_of_texts(descriptions: str) -> None:
    with pytest.raises(InvalidParameterError, match="object of texts"):
        label._descriptions(descriptions)
    assert label._descriptions('{"a": "b"}') == {"a": "b"}
    assert label._descriptions(None) == {}


@pytest.mark.parametrize(
    "examples",
    [
        "{}",
        "3",
        "[3]",
        '[{"content": "a"}]',
        '[{"label": "a"}]',
        '[{"content": "a", "label": "b", "more": "c"}]',
        '[{"content": "a", "label": 3}]',
        '[{"content": " ", "label": "b"}]',
        '[{"content": "a", "label": "b"}, {"content": "a", "label": ""}]',
    ],
)
def test_examples_are_an_array_of_texts_with_labels(examples: str) -> None:
    with pytest.raises(InvalidParameterError, match="content and label"):
        label._examples(examples)
    assert label._examples('[{"content": "a", "label": "b"}]') == [("a", "b")]
    assert label._examples(None) == []


@pytest.mark.parametrize("name", ["instruction", "model", "descriptions", "examples"])
def test_a_trained_classifier_is_asked_without_a_form(name: str) -> None:
    given = dict.fromkeys(("instruction", "model", "descriptions", "examples")) | {name: "x"}
    with pytest.raises(InvalidParameterError, match="classifier is passed with"):
        label.classified(database(), ["a", "b"], subtract_prior=None, classifier="priority", **given)
