"""Each of many texts has its own result or error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

import pytest
from mindful.core.errors import EngineError, InvalidParameterError
from mindful.generate import each
from mindful.generate.call import Arguments, Call
from mindful.generate.each import (
    _rows,
    llm_classify_each,
    llm_embed_each,
    llm_generate_each,
    llm_if_each,
)
from unit.fakes import FakeDatabase, scripted, wrapped


def lengths(texts: Sequence[str]) -> list[int]:
    if "bad" in texts:
        raise InvalidParameterError("the text is bad", "Give another.")
    return [len(text) for text in texts]


def test_results_stand_at_the_numbers_of_their_texts_and_an_error_costs_its_own() -> None:
    rows = _rows(FakeDatabase(), ["a", None, "bad", "four", "fifth"], "null", lengths)
    assert [(row["number"], row["result"]) for row in rows] == [(1, 1), (2, None), (3, None), (4, 4), (5, 5)]
    errors = [row["error"] and json.loads(row["error"]) for row in rows]
    error = {"sqlstate": "22023", "message": "the text is bad", "hint": "Give another."}
    assert errors == [None, None, error, None, None]


def test_texts_are_run_together_and_halved_only_after_an_error() -> None:
    runs = []

    def run(texts: Sequence[str]) -> list[int]:
        runs.append(list(texts))
        return lengths(texts)

    _rows(FakeDatabase(), ["a", "b", "c"], "null", run)
    assert runs == [["a", "b", "c"]]
    runs.clear()
    _rows(FakeDatabase(), ["a", "b", "bad", "d"], "null", run)
    assert runs == [["a", "b", "bad", "d"], ["a", "b"], ["bad", "d"], ["bad"], ["d"]]


def test_an_error_that_is_raised_names_the_element_that_fails_alone() -> None:
    with pytest.raises(InvalidParameterError, match="element 1: the text is bad"):
        _rows(FakeDatabase(), ["bad"], "raise", lengths)
    with pytest.raises(InvalidParameterError, match="the text is bad"):
        _rows(FakeDatabase(), ["a", "bad"], "raise", lengths)


def test_texts_that_are_refused_before_any_query_hear_a_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(each, "seldom", lambda check: check)
    db = FakeDatabase(scripted())

    def call_of_text(_at: int, text: str) -> Call:
        lengths(["bad"] if text == " " else [])
        return cast(Call, None)

    each._answered(db, [" "] * 10, "null", call_of_text)
    assert db.checks >= 10


def test_a_server_that_is_down_ends_the_call() -> None:
    def run(_: Sequence[str]) -> list[int]:
        raise EngineError("it is down", "Start it.")

    with pytest.raises(EngineError, match="it is down"):
        _rows(FakeDatabase(), ["a", "b"], "null", run)


def test_of_nothing_there_is_nothing() -> None:
    assert _rows(FakeDatabase(), None, "null", lengths) == _rows(FakeDatabase(), [], "null", lengths) == []


def test_a_cancel_is_heard_between_texts_that_fail_before_a_model_runs() -> None:
    db = FakeDatabase(scripted({"dims": 8}))
    rows = wrapped(llm_embed_each)(db, [" "] * 50, "null", None)
    assert [row["result"] for row in rows] == [None] * 50
    assert all("content is empty" in row["error"] for row in rows)
    assert db.checks >= 50


GENERATED = {"s": {"replies": [["rain", "wet"]], "default": "dry", "context_length": 64}}
NO_FORM = (None, None, False, None, None, None)
"""Instruction, model, subtract_prior, descriptions, examples and classifier, left out."""


def test_each_prompt_has_its_answer_or_its_error() -> None:
    db = FakeDatabase(scripted(**GENERATED))
    arguments = dict.fromkeys(Arguments._fields) | {"max_tokens": 8, "temperature": 0.0, "truncate": False}
    arguments |= {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}
    arguments |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    prompts = ["rain", None, "word " * 100, "sun"]
    rows = wrapped(llm_generate_each)(db, prompts, "null", *arguments.values())
    assert [(row["number"], row["result"]) for row in rows] == [(1, "wet"), (2, None), (3, None), (4, "dry")]
    assert [row["error"] and json.loads(row["error"])["sqlstate"] for row in rows] == [
        None,
        None,
        "54000",
        None,
    ]


def test_each_text_has_its_label_or_its_truth() -> None:
    db = FakeDatabase(scripted(s={"replies": [["rain", "wet"]], "default": "dry"}))
    rows = wrapped(llm_classify_each)(db, ["rain", None, "", "sun"], ["wet", "dry"], "null", *NO_FORM)
    assert [row["result"] and row["result"]["label"] for row in rows] == ["wet", None, None, "dry"]
    assert [row["error"] is None for row in rows] == [True, True, False, True]
    true = FakeDatabase(scripted(s={"replies": [["Text: rain", "true"]], "default": "false"}))
    rows = wrapped(llm_if_each)(true, ["rain", None, "sun"], "It is wet.", "null", None)
    assert [row["result"] for row in rows] == [True, None, False]
    rows = wrapped(llm_if_each)(true, ["rain", None], None, "null", None)
    assert [(row["result"], row["error"]) for row in rows] == [(None, None)] * 2


def test_texts_of_more_than_one_dimension_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="more than one dimension"):
        _rows(FakeDatabase(), [["a"], ["b"]], "null", lengths)  # type: ignore[list-item]
