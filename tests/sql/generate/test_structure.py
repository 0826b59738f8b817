"""JSON drawn from texts with the real model, whatever the schema."""

import contextlib
import json
import os
import re
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from psycopg.types.json import Jsonb
from support import GENERATOR, SCRIPTED_GENERATOR, fails, one
from support.clock import within

TEXT = "Anna Berg (34), who lives in Oslo and Bergen, paid 99.50 euros on 2024-03-12. She was not pleased."
EXAMPLES = int(os.environ.get("MINDFUL_FUZZ", "25"))
"""Generated schemas; each takes about a second."""

KEYS = st.one_of(
    st.sampled_from(["name", "age", "city", "price", "pleased", "date"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
)
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-1000, 1000), WORDS)


def extract(db: psycopg.Connection, schema: Any, **arguments: object) -> Any:
    named = "".join(f", {name} => %s{'::int' if name == 'max_tokens' else ''}" for name in arguments)
    sql = f"select llm_extract(%s, %s{named})"
    row = db.execute(sql.encode(), (TEXT, Jsonb(schema), *arguments.values())).fetchone()
    assert row is not None
    return row[0]


def numbers(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["integer", "number"]))}
    low = draw(st.integers(-300, 300))
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = low + draw(st.integers(2, 500))
    if schema["type"] == "number" and draw(st.booleans()):
        return {"type": "number", "minimum": low / 8, "maximum": low / 8 + draw(st.integers(1, 9)) / 8}
    return schema


@st.composite
def leaves(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["number", "string", "enum", "const", "boolean", "null", "format", "types"]))
    if kind == "number":
        return numbers(draw)
    if kind == "string":
        least = draw(st.integers(0, 5))
        return {"type": "string", "minLength": least, "maxLength": least + draw(st.integers(0, 12))}
    if kind == "enum":
        return {"enum": draw(st.lists(VALUES, min_size=1, max_size=4, unique_by=repr))}
    if kind == "const":
        return {"const": draw(VALUES)}
    if kind == "format":
        return {"type": "string", "format": draw(st.sampled_from(["date", "time", "date-time", "uuid"]))}
    if kind == "types":
        return {
            "type": draw(st.lists(st.sampled_from(["boolean", "null", "integer"]), min_size=1, unique=True))
        }
    return {"type": kind}


@st.composite
def objects(draw: st.DrawFn, parts: st.SearchStrategy[Any]) -> dict[str, Any]:
    flag: st.SearchStrategy[Any] = st.booleans()
    properties = draw(st.dictionaries(KEYS, parts, max_size=4))
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if properties and draw(flag):
        schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    if not properties or draw(flag):
        schema["additionalProperties"] = False
    return schema


@st.composite
def arrays(draw: st.DrawFn, parts: st.SearchStrategy[Any]) -> dict[str, Any]:
    least = draw(st.integers(0, 2))
    schema = {
        "type": "array",
        "items": draw(parts),
        "minItems": least,
        "maxItems": least + draw(st.integers(0, 2)),
    }
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(parts, min_size=1, max_size=2))
    return schema


SCHEMAS = st.recursive(
    leaves(),
    lambda parts: st.one_of(
        objects(parts),
        arrays(parts),
        st.builds(lambda some: {"anyOf": some}, st.lists(parts, min_size=1, max_size=3)),
    ),
    max_leaves=5,
)


@pytest.mark.timeout(1800)
@pytest.mark.shares
def test_whatever_the_schema_the_answer_fits_it(brief: str, ana: psycopg.Connection) -> None:
    found = {"fits": 0, "too long": 0}

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=EXAMPLES <= 25,
        suppress_health_check=list(HealthCheck),
    )
    @given(SCHEMAS)
    def check(schema: dict[str, Any]) -> None:
        try:
            value = extract(ana, schema, max_tokens=300)
        except psycopg.errors.ProgramLimitExceeded:
            found["too long"] += 1
            return
        found["fits"] += 1
        assert Draft202012Validator(schema).is_valid(value), value

    check()
    print(found)
    assert found["too long"] * 10 <= found["fits"]


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "cities": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 3},
    },
    "required": ["name", "age", "cities"],
}


@pytest.mark.shares
def test_what_the_text_says_is_found(ana: psycopg.Connection) -> None:
    found = extract(ana, PERSON)
    assert "Anna" in found["name"]
    assert found["age"] == 34


NUMBERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {"type": "integer"},
    "maxProperties": 2,
}
"""A schema to which the model that is cut short finds no end."""


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {}, "additionalProperties": False},
        NUMBERS,
        {"type": "object", "required": ["a"], "properties": {"b": {"const": 1}}, "minProperties": 2},
        {
            "properties": {
                'quo"te\\ \n\u00e9\u4f60\U0001f600': {"enum": ['"', "\\", "\x7f\x01", "\U0001f600"]}
            }
        },
        {"type": "object", "properties": {"never": False, "one": {"const": 1}}},
        {"type": "number", "minimum": 0.125, "maximum": 0.126},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.01},
        {"type": "integer", "minimum": -3, "maximum": -2},
        {"type": "integer", "exclusiveMinimum": 99, "exclusiveMaximum": 101},
        {"type": "string", "enum": [1, "a", None]},
        {"oneOf": [{"const": 1}, {"const": 2}]},
        {"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"const": 1}}}]},
        {"anyOf": [False, {"const": [1, {"a": []}]}]},
        {
            "$ref": "#/$defs/tree",
            "$defs": {
                "tree": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "maxLength": 8},
                        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 1},
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                }
            },
        },
    ],
)
@pytest.mark.shares
def test_odd_schemas_are_kept_to(brief: str, ana: psycopg.Connection, schema: dict[str, Any]) -> None:
    model = GENERATOR if schema is NUMBERS else brief
    try:
        value = extract(ana, schema, max_tokens=150, model=model)
    except psycopg.errors.ProgramLimitExceeded:
        assert schema in ({}, {"type": "object"}) or "$ref" in schema  # these have no end
        return
    assert Draft202012Validator(schema).is_valid(value), value


@pytest.mark.parametrize(
    ("schema", "sqlstate"),
    [
        ([], "22023"),
        (1, "22023"),
        ({"type": "text"}, "22023"),
        ({"minimum": "1"}, "22023"),
        ({"type": "string", "pattern": "^a$"}, "22023"),
        ({"$ref": "#"}, "22023"),
        ({"$ref": "#/$defs/none"}, "22023"),
        ({"$ref": "https://example.com/schema.json"}, "22023"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "22023"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "22023"),
        ({"type": "string", "enum": [1]}, "22023"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "22023"),
        ({"anyOf": [False]}, "22023"),
        ({"description": "x" * 70000}, "54000"),
    ],
)
@pytest.mark.shares
def test_a_schema_that_nothing_can_fit_is_refused(
    ana: psycopg.Connection, schema: Any, sqlstate: str
) -> None:
    with fails(sqlstate):
        extract(ana, schema)


@pytest.mark.shares
def test_a_schema_of_great_depth_is_refused(ana: psycopg.Connection) -> None:
    with fails("22023"):
        ana.execute("select llm_extract('x', (repeat('{\"not\":', 900) || '{}' || repeat('}', 900))::jsonb)")


@pytest.mark.smoke
@pytest.mark.shares
def test_half_an_object_is_never_returned(ana: psycopg.Connection) -> None:
    with fails("54000", "max_tokens"):
        extract(ana, PERSON, max_tokens=5)


@pytest.mark.shares
def test_an_answer_that_does_not_fit_after_all_is_an_error(ana: psycopg.Connection) -> None:
    with fails("22000"):
        extract(ana, PERSON, model=SCRIPTED_GENERATOR)
    with fails("22000"):
        extract(ana, {"type": "integer", "minimum": 1, "maximum": 1, "multipleOf": 2})


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("'x', null", "22004"),
        ("' ', '{}'", "22023"),
        ("'x', '{}', max_tokens => 0", "22023"),
        ("'x', '{}', model => 'nobody'", "42704"),
        ("repeat('word ', 3000), '{}'", "54000"),
    ],
)
@pytest.mark.shares
def test_bad_arguments_are_refused(ana: psycopg.Connection, arguments: str, sqlstate: str) -> None:
    with fails(sqlstate):
        ana.execute(f"select llm_extract({arguments})".encode())


def test_null_gives_null_and_calls_are_logged(brief: str, ana: psycopg.Connection) -> None:
    assert ana.execute("select llm_extract(null, '{}')").fetchone() == (None,)
    extract(ana, {"const": 1})
    row = ana.execute(
        "select count(*), max(finish_reason), sum(completion_tokens) from generation"
    ).fetchone()
    assert row is not None
    assert row[:2] == (1, "stop")
    assert row[2] >= 1


CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
ASK = "The text: Ben lives in Oslo. Where does he live? Answer as JSON with the key city."


@pytest.mark.parametrize(
    "answer",
    [
        "llm_generate(%s, json_schema => %s)",
        "(llm_generate_detail(%s, json_schema => %s)).text",
        "(llm_generate_many(array[%s], json_schema => %s))[1]",
        "(select string_agg(s, '') from llm_generate_stream(%s, json_schema => %s) s)",
    ],
)
@pytest.mark.smoke
@pytest.mark.shares
def test_an_answer_is_held_to_a_schema(ana: psycopg.Connection, answer: str) -> None:
    row = ana.execute(f"select {answer}".encode(), (ASK, Jsonb(CITY))).fetchone()
    assert row is not None
    assert Draft202012Validator(CITY).is_valid(json.loads(row[0])), row[0]


@pytest.mark.shares
def test_an_answer_is_held_to_a_grammar(ana: psycopg.Connection) -> None:
    row = ana.execute(
        "select llm_generate(%s, grammar => %s), (llm_generate_many(array[%s, 'Hi'], grammar => %s))[1]",
        (ASK, grammar := 'root ::= ("Bergen" | "Oslo" | "\u4f60") "!"{2}', ASK, grammar),
    ).fetchone()
    assert row is not None
    assert set(row) <= {"Bergen!!", "Oslo!!", "\u4f60!!"}


@pytest.mark.shares
def test_half_an_answer_to_a_schema_is_an_error_everywhere(ana: psycopg.Connection) -> None:
    arguments = "%s, json_schema => %s, max_tokens => 3"
    for call in (
        f"llm_generate({arguments})",
        f"llm_generate_detail({arguments})",
        f"llm_generate_stream({arguments})",
        f"llm_generate_many(array[{arguments.replace(',', '],', 1)})",
    ):
        with fails("54000", "max_tokens"):
            ana.execute(f"select {call}".encode(), (ASK, Jsonb(CITY)))


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("grammar => ''", "22023"),
        ("grammar => 'root ::='", None),
        ("grammar => 'rule ::= \"a\"'", "22023"),
        ("grammar => 'root ::= nothing'", "22023"),
        ("grammar => 'root ::= root \"a\"'", "22023"),
        ("grammar => 'root ::= \"a'", "22023"),
        ("grammar => 'root ::= [a-'", "22023"),
        ("grammar => 'root ::= \"a\"{1000000}'", "54000"),
        ("grammar => 'root ::= ' || repeat('(', 30000) || '\"a\"' || repeat(')', 30000)", "22023"),
        ("grammar => 'root ::= \"' || repeat('a', 70000) || '\"'", "54000"),
        ("grammar => 'root ::= \"a\"', json_schema => '{}'", "22023"),
        ("stop => '{a}', json_schema => '{}'", "22023"),
        ('json_schema => \'{"type": "text"}\'', "22023"),
        ("json_schema => '[]'", "22023"),
    ],
)
@pytest.mark.shares
def test_a_bad_schema_or_grammar_is_refused_and_the_connection_lives(
    ana: psycopg.Connection, arguments: str, sqlstate: str | None
) -> None:
    for call in ("llm_generate('Hi'", "llm_generate_many('{Hi}'"):
        sql = f"select {call}, {arguments})".encode()
        if sqlstate is None:
            ana.execute(sql)
        else:
            with fails(sqlstate):
                ana.execute(sql)
    assert ana.execute("select llm_generate('Hi', max_tokens => 1)").fetchone()


HOSTILE = {
    "ambiguous within a token": 'root ::= x\nx ::= [a-z ] x "b" | [a-z ] x "c" | "."',
    "ambiguous": "root ::= x\nx ::= x x | [a-z ] |",
    "nested quantifiers": "root ::= (((( [a-z ]* )* )* )* )*",
    "nested counts": "root ::= ((([a-z ]{0,500}){0,500}){0,500}){0,500}",
    "optional": "root ::= (" + " ".join(["[a-z ]?"] * 3000) + ")*",
    "empty loops": 'root ::= (""* | ("")* | ((""*)*)*)* [a-z ]*',
    "a chain of rules": "root ::= r0\n"
    + "".join(f"r{n} ::= r{n + 1}\n" for n in range(3800))
    + "r3800 ::= [a-z]*",
    "a deep chain": "root ::= r0\n"
    + "".join(f'r{n} ::= (("a"? r{n + 1}*)?)+\n' for n in range(2400))
    + 'r2400 ::= "a"',
    "deep recursion": 'root ::= s\ns ::= "(" s ")" s | [a-z ]* s |',
    "parentheses": "root ::= " + "(" * 190 + '"a"' + ")*" * 190,
    "a large set": "root ::= [" + "".join(chr(code) for code in range(0x4E00, 0x4E00 + 20000)) + "]*",
    "many words": "root ::= (" + " | ".join(f'"{n * 7919 % 100003}"' for n in range(6000)) + ")*",
}


@pytest.mark.parametrize("grammar", HOSTILE)
@pytest.mark.shares
def test_no_grammar_makes_a_call_deaf(brief: str, ana: psycopg.Connection, grammar: str) -> None:
    """Whether it is followed, refused or cancelled, the call ends soon after its time-out."""
    ana.execute("select model_unload()")  # which waits for what is still at work on another grammar
    ana.execute("select llm_generate('Hi', max_tokens => 1, grammar => 'root ::= [a-z]')")
    ana.execute("set statement_timeout = '500ms'")
    for at, call in enumerate(("llm_generate('Tell a story.'", "llm_generate_many('{Tell,Go}'")):
        other = f'{HOSTILE[grammar]}\nunused{at} ::= "a"'  # than the one that was read for the call before
        for clock in within(0.7):
            clock.of(ana.info.backend_pid)
            with contextlib.suppress(psycopg.errors.QueryCanceled, psycopg.errors.ProgramLimitExceeded):
                ana.execute(f"select {call}, grammar => %s)".encode(), (other,))
    ana.execute("set statement_timeout = 0")
    assert ana.execute("select llm_generate('Hi', max_tokens => 1)").fetchone()


@pytest.mark.shares
def test_an_ambiguous_grammar_is_followed(ana: psycopg.Connection) -> None:
    grammar = HOSTILE["ambiguous within a token"].replace("[a-z ]", "[a-d]")
    text = one(ana, "select llm_generate('Say a.', grammar => %s, max_tokens => 100)", grammar)
    assert re.fullmatch(r"[a-d]*\.?[bc]*", text)


@pytest.mark.smoke
def test_many_texts_are_extracted_in_their_order(ana: psycopg.Connection) -> None:
    texts = ["Ben lives in Oslo.", None, "Mia lives in Rome.", "Anna moved to Paris."]
    sql = "select llm_extract_many(%s, %s, 'In which city does the person live?', max_tokens => 40)"
    row = ana.execute(sql, (texts, Jsonb(CITY))).fetchone()
    assert row is not None
    for city, found in zip(("Oslo", None, "Rome", "Paris"), row[0], strict=True):
        assert found is None if city is None else city in found["city"]
    logged = ana.execute("select count(*), min(cached_tokens) > 10 from generation where cached_tokens > 0")
    assert logged.fetchone() == (2, True)  # the instruction and the schema were evaluated once


@pytest.mark.shares
def test_a_text_of_many_that_fails_is_named(ana: psycopg.Connection) -> None:
    for arguments, sqlstate in (("40", "22023"), ("2", "54000")):
        texts = ["Ben lives in Oslo.", " " if sqlstate == "22023" else "x"]
        with fails(sqlstate) as caught:
            ana.execute(
                "select llm_extract_many(%s, %s, max_tokens => %s::int)", (texts, Jsonb(CITY), arguments)
            )
        assert f"content {2 if sqlstate == '22023' else 1}: " in str(caught.value)
    assert ana.execute("select llm_extract_many(null, '{}'), llm_extract_many('{}', '{}')").fetchone() == (
        None,
        [],
    )


@pytest.mark.parametrize("call", ["llm_generate('x', ", "llm_generate_many('{x,y}', ", "llm_extract('x', "])
@pytest.mark.parametrize(
    "schema",
    ['{"enum": []}', '{"type": "integer", "minimum": 1e5000}', '{"a": ' + "[" * 5000 + "]" * 5000 + "}"],
)
def test_what_python_cannot_read_or_nothing_fits_is_refused(
    ana: psycopg.Connection, call: str, schema: str
) -> None:
    with fails("22023"):
        ana.execute(f"select {call}json_schema => %s)".encode(), (schema,))


def test_errors_beside_rows_tell_of_a_schema_that_nothing_fits(ana: psycopg.Connection) -> None:
    with fails("22023", hint="Relax"):
        ana.execute(
            "select * from llm_generate_many('{x}', json_schema => '{\"enum\": []}', on_error => 'null')"
        )
