"""Scores of texts, as many as the time allows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mindful.core.errors import ContextLengthError, InvalidParameterError, MindfulError
from mindful.generate.rerank import llm_rerank
from unit.fakes import FakeDatabase, wrapped


def database(**options: Any) -> FakeDatabase:
    model = {"name": "r", "kind": "reranker", "provider": "scripted", "source": "", "sha256": "cafe"}
    return FakeDatabase({"_mindful.model_find": [model | {"options": json.dumps(options)}]})


def rerank(
    query: str | None, contents: Any, limit_ms: int | None = None, **options: Any
) -> list[float | None] | None:
    found: list[float | None] | None = wrapped(llm_rerank)(
        database(**options), query, contents, None, limit_ms
    )
    return found


def test_each_text_has_its_score_in_its_place() -> None:
    assert rerank("red fox", ["a fox", None, "red fox", "hen"]) == [0.5, None, 1.0, 0.0]
    assert rerank("red fox", []) == []


def test_null_gives_null() -> None:
    assert rerank(None, ["a"]) is None
    assert rerank("a", None) is None


def test_what_the_time_does_not_allow_has_no_score() -> None:
    found = rerank("fox", ["a fox"] * 50, limit_ms=100, delay_ms=20)
    assert found is not None
    scored = [score for score in found if score is not None]
    assert found == [1.0] * len(scored) + [None] * (50 - len(scored))
    assert 1 <= len(scored) < 10


def test_without_a_limit_all_have_one() -> None:
    assert rerank("fox", ["a fox"] * 5, delay_ms=1) == [1.0] * 5
    assert rerank("fox", ["a fox"] * 2, limit_ms=1 << 30) == [1.0] * 2


@pytest.mark.parametrize(
    ("query", "contents", "limit_ms", "error"),
    [
        (" \n", ["a"], None, InvalidParameterError),
        ("a", ["b", " "], None, InvalidParameterError),
        ("a", [["b"]], None, InvalidParameterError),
        ("a", ["b"], 0, InvalidParameterError),
        ("a", ["b"], -1, InvalidParameterError),
        ("a", ["b" * 300_000], None, ContextLengthError),
        ("a" * 300_000, ["b"], None, ContextLengthError),
    ],
)
def test_bad_arguments_are_refused(
    query: str, contents: Any, limit_ms: int | None, error: type[MindfulError]
) -> None:
    with pytest.raises(error):
        rerank(query, contents, limit_ms)


def test_one_millisecond_is_a_limit() -> None:
    assert rerank("fox", ["a fox"], limit_ms=1, delay_ms=30) in ([None], [1.0])
