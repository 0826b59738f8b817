from __future__ import annotations

import json
import re
from decimal import Decimal
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from llguidance import LLMatcher, LLTokenizer
from mindful.core.errors import InvalidParameterError
from mindful.generate.schema_grammar import grammar_of
from mindful.models.gbnf import lark

BOUNDS = st.integers(-12000, 12000)
BYTES = LLTokenizer("byte")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"|\s+')


def grammar(schema: dict[str, Any]) -> dict[str, str]:
    text = grammar_of(schema, lambda _value, _part: True)
    return dict(line.split(" ::= ", 1) for line in text.strip().split("\n"))


def pattern(schema: dict[str, Any]) -> re.Pattern[str]:
    """The root's rule as a regular expression, where it refers to no other."""
    rules = grammar(schema)
    body = rules[rules["root"]]
    return re.compile(_LITERAL.sub(lambda found: re.escape(found[1] or ""), body))


def accepted(rules: str, text: str) -> bool:
    """Whether a grammar accepts a whole text, by llguidance."""
    matcher = LLMatcher(BYTES, LLMatcher.grammar_from_lark(lark(rules)))
    data = [*text.encode()]
    return bool(matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting())


@given(BOUNDS, BOUNDS, st.integers(-13000, 13000))
def test_a_whole_number_is_allowed_just_within_its_bounds(one: int, other: int, value: int) -> None:
    low, high = sorted((one, other))
    allowed = pattern({"type": "integer", "minimum": low, "maximum": high})
    assert bool(allowed.fullmatch(str(value))) == (low <= value <= high)
    assert allowed.fullmatch(str(low))
    assert allowed.fullmatch(str(high))
    assert not allowed.fullmatch(f"0{abs(value)}")


@pytest.mark.parametrize(
    ("low", "high"),
    [(0, 1050), (-1050, 0), (-115, 95), (7, 7), (10, 99), (9, 110), (199, 1100), (-9, -1), (100, 999)],
)
def test_of_many_whole_numbers_those_within_the_bounds_are_allowed(low: int, high: int) -> None:
    allowed = pattern({"type": "integer", "minimum": low, "maximum": high})
    assert [value for value in range(-1200, 1201) if allowed.fullmatch(str(value))] == list(
        range(low, high + 1)
    )


def test_numbers_have_fifteen_digits_at_most() -> None:
    for bound in ({"maximum": 10**30, "minimum": 0}, {"minimum": 0}, {"maximum": 10**16, "minimum": 5}):
        allowed = pattern({"type": "integer"} | bound)
        assert allowed.fullmatch("9" * 15)
        assert not allowed.fullmatch("9" * 17)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1.5, 2.25), (0.05, 12.5), (99.5, 100.5), (-0.25, -0.1)])
def test_of_many_numbers_those_within_the_bounds_are_allowed(low: float, high: float) -> None:
    allowed = pattern({"type": "number", "exclusiveMinimum": low, "maximum": high})
    for places in (0, 1, 2):
        values = [Decimal(value).scaleb(-places) for value in range(-160 * 10**places // 1, 160 * 10**places)]
        found = [value for value in values if allowed.fullmatch(f"{value:f}")]
        assert found == [value for value in values if Decimal(str(low)) < value <= Decimal(str(high))]


@given(BOUNDS, st.integers(1, 9000), st.integers(-2_000_000, 2_000_000), st.integers(0, 2))
def test_a_number_is_allowed_just_within_its_bounds(low: int, width: int, value: int, places: int) -> None:
    least, most = Decimal(low) / 10, Decimal(low + width) / 10
    allowed = pattern({"type": "number", "minimum": float(least), "exclusiveMaximum": float(most)})
    number = Decimal(value).scaleb(-places)
    zero = number == 0 and value < 0
    assert bool(allowed.fullmatch(f"{number:f}")) == (least <= number < most) or zero


@given(st.integers(-(10**14), 10**14))
def test_one_bound_is_enough(bound: int) -> None:
    least, most = (
        pattern({"type": "integer", "minimum": bound}),
        pattern({"type": "integer", "maximum": bound}),
    )
    for allowed, inside, outside in ((least, 1, -1), (most, -1, 1)):
        assert allowed.fullmatch(str(bound))
        assert allowed.fullmatch(str(bound + inside))
        assert not allowed.fullmatch(str(bound + outside))


@given(st.dictionaries(st.text(min_size=1), st.just({"const": 1}), max_size=4))
def test_any_key_is_a_literal(properties: dict[str, Any]) -> None:
    rules = grammar({"properties": properties})
    assert all(re.fullmatch(r"[\w-]+", name) for name in rules)


@pytest.mark.parametrize("least", [0, 1, 2])
def test_an_array_that_begins_with_enough_elements_needs_no_more(least: int) -> None:
    schema = {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}}
    assert grammar(schema | {"minItems": least}) == grammar(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
        {"type": "number", "minimum": 1e300},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1e-9},
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "object", "minProperties": 1, "additionalProperties": False},
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {"$ref": "#/nowhere"},
        {"properties": {"a": {"$ref": "#name"}}, "$defs": {"a": {"$anchor": "name"}}},
        {"type": "string", "allOf": [{"type": "integer"}]},
        {"type": "string", "format": "uuid", "maxLength": 30},
        {"$ref": "#/required", "required": []},
    ],
)
def test_what_nothing_fits_is_an_error(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        grammar(schema)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("schema", "fits", "others"),
    [
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}, "enum": ["x"]}, ['"x"'], ['"y"']),
        ({"type": "integer", "minimum": 5, "allOf": [{"minimum": 1, "maximum": 9}]}, ["5", "9"], ["4", "10"]),
        ({"type": ["integer", "null"], "anyOf": [{"type": "number", "maximum": 0}]}, ["0"], ["0.5"]),
        ({"type": "string", "minLength": 2.0, "maxLength": 3.0}, ['"ab"'], ['"a"']),
        ({"type": "array", "items": {"const": 1}, "minItems": 1.0, "maxItems": 1.0}, ["[1]"], ["[1, 1]"]),
        (
            {"properties": {"a": {"const": 1}}, "minProperties": 1.0, "maxProperties": 1.0},
            ['{"a":1}'],
            ["{}"],
        ),
        ({"type": "string", "format": "date", "minLength": 9}, ['"2026-11-26"'], ['"2026-99-99"']),
        ({"type": "string", "format": "time", "maxLength": 9}, ['"09:30:00Z"'], ['"09:30:00+01:00"']),
    ],
)
def test_all_of_a_parts_keywords_count(schema: dict[str, Any], fits: list[str], others: list[str]) -> None:
    guide = Draft202012Validator(schema)
    rules = grammar_of(schema, lambda value, part: guide.evolve(schema=part).is_valid(value))
    assert [text for text in [*fits, *others] if accepted(rules, text)] == fits


def test_a_schema_of_many_references_is_bounded_and_hears_a_cancel() -> None:
    parts = [{"$ref": "#", "required": [f"r{at}"]} for at in range(40)]
    calls = [None] * 1000
    with pytest.raises(IndexError):
        grammar_of({"type": "object", "anyOf": parts}, lambda _value, _part: True, calls.pop)
    chain = {f"a{at}": {"$ref": f"#/$defs/a{at + 1}"} for at in range(700)}
    with pytest.raises(InvalidParameterError, match="too deeply"):
        grammar({"$ref": "#/$defs/a0", "$defs": chain})


def test_a_reference_may_lead_back() -> None:
    rules = grammar({"type": "object", "properties": {"next": {"$ref": "#"}}})
    assert any(rules["root"] in body for name, body in rules.items() if name != "root")


def whole(rules: dict[str, str], name: str = "root") -> str:
    """A rule as a regular expression, with the rules that it refers to in their places."""

    def turned(found: re.Match[str]) -> str:
        if found["literal"]:
            return re.escape(str(json.loads(found["literal"])))
        return f"(?:{whole(rules, found['rule'])})" if found["rule"] else ""

    form = r'(?P<literal>"(?:[^"\\]|\\.)*")|(?P<rule>\b[a-z][\w-]*)|\s+'
    return re.sub(form, turned, rules[name])


@pytest.mark.parametrize("required", [(), ("a",), ("b",), ("a", "c"), ("a", "b", "c")])
@pytest.mark.parametrize("least", range(5))
@pytest.mark.parametrize("most", [0, 1, 2, 3, 4, None])
def test_an_object_has_as_many_members_as_it_may(
    required: tuple[str, ...], least: int, most: int | None
) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"const": 1} for name in "abc"},
        "required": list(required),
        "additionalProperties": False,
        "minProperties": least,
    } | ({} if most is None else {"maxProperties": most})
    fitting = [
        names
        for size in range(4)
        for names in combinations("abc", size)
        if set(required) <= set(names) and least <= size <= (3 if most is None else most)
    ]
    if not fitting:
        with pytest.raises(InvalidParameterError):
            grammar(schema)
        return
    allowed = re.compile(whole(grammar(schema)))
    found = [
        names
        for size in range(4)
        for names in combinations("abc", size)
        if allowed.fullmatch("{" + ",".join(f'"{name}":1' for name in names) + "}")
    ]
    assert found
    assert set(found) <= set(fitting)
    assert found == fitting or least > len(required) or most is not None
