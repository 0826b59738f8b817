"""Calls over many texts of which some fail."""

import json
import threading
from typing import Any, LiteralString

import psycopg
import pytest
from support import fails, one

pytestmark = pytest.mark.shares

PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
)
LONG = "word " * 5000

# Call, its good texts, and the SQLSTATEs of a blank text and of one that is longer than the context.
CALLS: dict[str, tuple[LiteralString, list[str], list[str | None]]] = {
    "generate": (
        "llm_generate_many(%s::text[], max_tokens => 4, on_error => 'null')",
        ["Hi.", "Name a cat."],
        ["22023", "54000"],
    ),
    "classify": (
        "llm_classify_many(%s::text[], '{good,bad}', on_error => 'null')",
        ["Superb!", "Awful."],
        ["22023", "54000"],
    ),
    "if": (
        "llm_if_many(%s::text[], 'It is praise.', on_error => 'null')",
        ["Superb!", "Awful."],
        ["22023", "54000"],
    ),
    "embed": ("llm_embed_many(%s::text[], on_error => 'null')", ["Superb!", "Awful."], ["22023", None]),
    "extract": (
        'llm_extract_many(%s::text[], \'{"enum": ["yes", "no"]}\', on_error => \'null\')',
        ["Yes.", "No."],
        ["22023", "54000"],
    ),
}


def rows(db: psycopg.Connection, call: LiteralString, texts: list[str | None]) -> list[tuple[Any, ...]]:
    query = f"select number, result::text, error from {call}"
    return db.execute(query.encode(), (texts,)).fetchall()


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_row_costs_the_others_nothing(ana: psycopg.Connection, name: str) -> None:
    call, (first, last), states = CALLS[name]
    alone = rows(ana, call, [first, last])
    found = rows(ana, call, [first, " ", None, LONG, last])
    assert [row[0] for row in found] == [1, 2, 3, 4, 5]
    for (_, result, _), (_, expected, _) in zip((found[0], found[4]), alone, strict=True):
        if name == "embed":  # computed beside others, embeddings differ in their last digits
            assert json.loads(result) == pytest.approx(json.loads(expected), abs=1e-3)
        else:
            assert result == expected
    assert None not in (found[0][1], found[4][1])
    assert found[2][1:] == (None, None)
    for row, state in zip((found[1], found[3]), states, strict=True):
        assert (row[1] is None) == (state is not None)
        assert state is None or (
            {"sqlstate", "message", "hint"} == row[2].keys() and row[2]["sqlstate"] == state
        )


def test_an_answer_that_is_not_complete_has_an_error_beside_it(ana: psycopg.Connection) -> None:
    query = """select number, result, error ->> 'sqlstate'
        from llm_extract_many(%s, %s, max_tokens => %s::int, on_error => 'null')"""
    texts = ["Ana is 31.", "Bob is 7."]
    assert ana.execute(query, (texts, PERSON, 3)).fetchall() == [(1, None, "54000"), (2, None, "54000")]
    assert all(row[1] for row in ana.execute(query, (texts, PERSON, 64)))


def test_raise_ends_the_call_at_the_first_bad_row(ana: psycopg.Connection) -> None:
    with fails("22023"):
        ana.execute("select * from llm_generate_many(array['Hi', ' '], max_tokens => 1, on_error => 'raise')")
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        ana.execute("select * from llm_generate_many(array['Hi'], on_error => 'skip')")


@pytest.mark.parametrize(
    ("call", "sqlstate"),
    [
        ("llm_generate_many(array['a', ' '], model => 'absent', on_error => 'null')", "42704"),
        ("llm_generate_many(array['a', ' '], max_tokens => 0, on_error => 'null')", "22023"),
        ("llm_extract_many(array['a'], '{\"type\": 1}', on_error => 'null')", "22023"),
        ("llm_classify_many(array['a'], '{}', on_error => 'null')", "22023"),
        ("llm_if_many(array['a'], ' ', on_error => 'null')", "22023"),
        ("llm_embed_many(array['a'], model => 'absent', on_error => 'null')", "42704"),
    ],
)
def test_a_wrong_argument_is_an_error_of_the_call(
    ana: psycopg.Connection, call: LiteralString, sqlstate: str
) -> None:
    with fails(sqlstate):
        ana.execute(f"select * from {call}")


def test_calls_of_before_mean_what_they_meant(ana: psycopg.Connection) -> None:
    assert one(ana, "select cardinality(llm_generate_many('{Hi,Ho}', 'smollm2-135m-instruct', 2))") == 2
    assert (
        one(ana, "select pg_typeof(llm_classify_many('{Hi}', '{a,b}', 'Choose.'))::text") == "label_detail[]"
    )
    with fails("22023"):
        ana.execute("select llm_generate_many(array['Hi', ' '], max_tokens => 1)")


def test_a_cancel_is_no_error_of_a_row(ana: psycopg.Connection) -> None:
    rows(ana, CALLS["generate"][0], ["Hi"])
    timer = threading.Timer(0.3, ana.cancel)
    timer.start()
    with pytest.raises(psycopg.errors.QueryCanceled):
        ana.execute(
            """select * from llm_generate_many(array_fill('Tell me a long story.'::text, array[64]),
                   max_tokens => 256, on_error => 'null')"""
        )
    timer.join()


@pytest.mark.parametrize("name", CALLS)
def test_an_array_of_arrays_is_refused(ana: psycopg.Connection, name: str) -> None:
    with fails("22023", "one-dimensional"):
        ana.execute(f"select * from {CALLS[name][0]}".encode(), ([["a", "b"], ["c", "d"]],))


@pytest.mark.parametrize(
    "call",
    [
        "llm_classify_many('{x}', '{a,b}', examples => %s, on_error => 'null')",
        "llm_classify_many('{x}', '{a,b}', descriptions => %s, on_error => 'null')",
        "llm_extract_many('{x}', %s, on_error => 'null')",
        "llm_generate_many('{x}', json_schema => %s, on_error => 'null')",
        "llm_extract('x', %s)",
    ],
)
def test_json_that_is_nested_deeply_is_refused(ana: psycopg.Connection, call: LiteralString) -> None:
    deep = '{"items": ' * 3000 + "{}" + "}" * 3000
    with fails("22023", "Flatten"):
        ana.execute(f"select * from {call}".encode(), (deep,))
