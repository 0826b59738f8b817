"""Schemas that answers are held to: which are accepted, and what fits them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.core.errors import ContextLengthError, DataError, InvalidParameterError, MindfulError
from mindful.generate.schema import Schema, schema_of

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}


def schema(value: Any) -> Schema:
    return Schema(json.dumps(value))


def test_json_that_fits_is_returned_as_it_stands() -> None:
    text = '{"name":  "Ana", "age": 0}'
    assert schema(PERSON).checked(text) is text


@pytest.mark.parametrize(
    ("answer", "place"),
    [
        ('{"age": 3}', "/required"),
        ('{"name": "Ana", "age": -1}', "/properties/age/minimum"),
        ('{"name": 3}', "/properties/name/type"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_by_its_place_and_not_quoted(answer: str, place: str) -> None:
    with pytest.raises(DataError, match=f"{place}$") as caught:
        schema(PERSON).checked(answer)
    assert "Ana" not in str(caught.value)


def test_an_answer_that_is_cut_is_no_json() -> None:
    with pytest.raises(DataError):
        schema(PERSON).checked('{"name": "An')


@given(st.integers(), st.integers(-100, 100))
def test_a_part_of_a_schema_is_fitted_alone(value: int, least: int) -> None:
    assert schema(PERSON).fits(value, {"minimum": least}) == (value >= least)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([], InvalidParameterError),
        (3, InvalidParameterError),
        ({"type": "nothing"}, InvalidParameterError),
        ({"properties": []}, InvalidParameterError),
        ({"type": "string", "pattern": "a+"}, InvalidParameterError),
        ({"patternProperties": {"a": {}}}, InvalidParameterError),
        ({"$id": "http://example.com"}, InvalidParameterError),
        ({"$ref": "http://example.com"}, InvalidParameterError),
        ({"properties": {"a": {"items": {"pattern": "a"}}}}, InvalidParameterError),
        ({"anyOf": [{"type": "string"}, {"pattern": "a"}]}, InvalidParameterError),
        ({"$defs": {"a": {"pattern": "a"}}}, InvalidParameterError),
        ({"description": "x" * (1 << 16)}, ContextLengthError),
    ],
)
def test_schemas_that_fetch_match_patterns_or_are_too_long_are_refused(
    value: Any, error: type[MindfulError]
) -> None:
    with pytest.raises(error):
        schema(value)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"properties": {"pattern": {"type": "string"}, "$id": {}, "$ref": {}}},
        {"$defs": {"pattern": {"type": "string"}}, "$ref": "#/$defs/pattern"},
        {"const": {"pattern": "a"}},
        {"enum": [{"$id": "a"}]},
        {"default": {"pattern": "a"}},
        {"examples": [{"pattern": "a"}]},
        {"description": "x" * 65_000},
    ],
)
def test_members_and_values_that_are_named_as_keywords_are_none(value: Any) -> None:
    assert schema(value).schema == value


def test_a_schema_of_the_longest_length_is_read_and_one_of_a_byte_more_is_not() -> None:
    frame = len(json.dumps({"description": ""}))
    assert schema({"description": "x" * ((1 << 16) - frame)})
    with pytest.raises(ContextLengthError):
        schema({"description": "x" * ((1 << 16) - frame + 1)})
    with pytest.raises(ContextLengthError):
        Schema(json.dumps({"description": "\u00fc" * (1 << 15)}, ensure_ascii=False))


def test_a_schema_of_great_depth_is_refused() -> None:
    with pytest.raises((InvalidParameterError, ContextLengthError, RecursionError)):
        Schema('{"not": ' * 3000 + "{}" + "}" * 3000)


def test_a_schema_that_is_given_again_is_not_read_again() -> None:
    def check() -> None:
        """Hear no cancel."""

    text = json.dumps(PERSON)
    assert schema_of(text, check) is schema_of(text, check)
