"""Each of many texts has its own result or error."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from mindful.core.errors import EngineError, InvalidParameterError
from mindful.generate.each import _rows, llm_embed_each
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
