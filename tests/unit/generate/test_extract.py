"""Objects drawn from texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mindful.core.errors import ContextLengthError, InvalidParameterError, MindfulError, NullValueError
from mindful.generate.structure import llm_extract, llm_extract_many
from unit.fakes import FakeDatabase, scripted, wrapped

SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


def database() -> FakeDatabase:
    replies = [["one fox", '{"n": 1}'], ["two hens", '{"n": 2}'], ["broken", '{"m": 2}']]
    return FakeDatabase(scripted(generator={"replies": replies, "default": '{"n": 0}'}))


def extract(content: str | None, schema: str | None = SCHEMA, **changed: Any) -> str | None:
    arguments = {"instruction": None, "model": None, "max_tokens": 64} | changed
    found: str | None = wrapped(llm_extract)(database(), content, schema, *arguments.values())
    return found


def extract_many(contents: Any, schema: str | None = SCHEMA, **changed: Any) -> list[str | None] | None:
    arguments = {"instruction": None, "model": None, "max_tokens": 64} | changed
    found: list[str | None] | None = wrapped(llm_extract_many)(
        database(), contents, schema, *arguments.values()
    )
    return found


def test_each_text_has_its_object_in_its_place() -> None:
    assert extract("I saw one fox.") == '{"n": 1}'
    assert extract_many(["two hens", None, "one fox", "none"]) == ['{"n": 2}', None, '{"n": 1}', '{"n": 0}']


def test_null_gives_null_and_the_schema_is_checked_all_the_same() -> None:
    assert extract(None) is None
    assert extract_many(None) is None
    for call in (extract, extract_many):
        with pytest.raises(NullValueError):
            call(None, None)
        with pytest.raises(InvalidParameterError):
            call(None, "[]")


def test_an_instruction_takes_the_place_of_the_usual_one() -> None:
    def replying(instruction: str | None) -> str | None:
        replies = [["Count the animals", '{"n": 7}']]
        db = FakeDatabase(scripted(generator={"replies": replies, "default": '{"n": 0}'}))
        found: str | None = wrapped(llm_extract)(db, "a fox", SCHEMA, instruction, None, 64)
        return found

    assert json.loads(replying("Count the animals") or "") == {"n": 7}
    assert json.loads(replying(None) or "") == {"n": 0}


@pytest.mark.parametrize(
    ("content", "changed", "error"),
    [
        (" ", {}, InvalidParameterError),
        ("x" * 300_000, {}, ContextLengthError),
        ("x", {"instruction": "y" * 300_000}, ContextLengthError),
        ("x", {"max_tokens": 0}, InvalidParameterError),
        ("x", {"max_tokens": None}, NullValueError),
        ("broken", {}, MindfulError),
    ],
)
def test_bad_arguments_and_answers_are_refused(
    content: str, changed: dict[str, Any], error: type[MindfulError]
) -> None:
    with pytest.raises(error):
        extract(content, **changed)
    with pytest.raises(error):
        extract_many(["one fox", content], **changed)
