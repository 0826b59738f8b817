"""Many rows and long texts in a call, under a time-out: all must end."""

from __future__ import annotations

import psycopg
import pytest
from support import SCRIPTED_GENERATOR
from support.clock import within

ROWS = 100_000
LIMIT_MS = 500
LATEST_S = 0.7


@pytest.fixture
def hurried(bob: psycopg.Connection, admin: psycopg.Connection) -> psycopg.Connection:
    """Bob, whose statements end after a moment; the models are loaded."""
    admin.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))
    bob.execute("select llm_generate('x'), memory_insert('x')")
    bob.execute(f"set statement_timeout = {LIMIT_MS}")
    return bob


def assert_ends(connection: psycopg.Connection, call: str) -> None:
    """Assert that a call ends soon after the time-out, with a result or an error of the statement alone."""
    for _ in within(LATEST_S):
        sqlstate = "00000"
        try:
            connection.execute(call)
        except psycopg.Error as error:
            sqlstate = error.sqlstate or "no SQLSTATE"
        assert not sqlstate.startswith(("XX", "08", "no")), call
        assert connection.execute("select 1").fetchone() == (1,)


def test_extraction_from_many_texts(hurried: psycopg.Connection) -> None:
    """Extracts from 100,000 texts in a call."""
    assert_ends(
        hurried,
        f"""select llm_extract_many(array_agg('Marta lives in Oslo ' || i), '{{"type": "integer"}}')
            from generate_series(1, {ROWS}) i""",
    )


def test_import_of_many_questions(hurried: psycopg.Connection) -> None:
    """Imports 100,000 gold questions in a call."""
    assert_ends(
        hurried,
        f"""select gold_evaluate(jsonb_agg('{{"question": "Where?", "answers": ["Oslo"]}}'::jsonb))
            from generate_series(1, {ROWS}) i""",
    )


def test_memories_in_one_call(hurried: psycopg.Connection) -> None:
    """Inserts 100,000 memories in a call."""
    assert_ends(
        hurried,
        f"""select count(*) from memory_insert_many((select jsonb_agg(jsonb_build_object('content', 'memory ' || i))
            from generate_series(1, {ROWS}) i))""",
    )
    assert hurried.execute("select count(*) from memory").fetchone() == (1,)


@pytest.mark.parametrize(
    "call",
    [
        "memory_insert({text})",
        "memory_recall({text})",
        "llm_generate({text})",
        "llm_chat({text})",
        "llm_embed({text})",
        "llm_classify({text}, '{{a,b}}')",
        "llm_token_count({text})",
        "message_insert(session_start(), 'user', {text})",
        "gold_evaluate(to_jsonb({text}))",
    ],
)
def test_a_text_of_ten_megabytes(hurried: psycopg.Connection, call: str) -> None:
    """Gives a text of 10 MB to every kind of function."""
    assert_ends(hurried, "select " + call.format(text="repeat('word ', 2000000)"))


def test_more_memories_than_there_can_be(hurried: psycopg.Connection) -> None:
    """Asks for two billion memories, tokens and steps."""
    for call in (
        "memory_recall('x', 2147483647)",
        "llm_generate('x', max_tokens => 2147483647)",
        "memory_neighbors(min(id), 2147483647) from memory",
    ):
        assert_ends(hurried, f"select {call}")


def test_a_deep_schema(hurried: psycopg.Connection) -> None:
    """Asks for JSON by a schema of 5,000 levels."""
    deep = '{"type": "array", "items": ' * 5000 + "{}" + "}" * 5000
    with pytest.raises(psycopg.Error):
        hurried.execute("select llm_extract('x', %s)", (deep,))
