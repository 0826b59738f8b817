"""Two connections that enter the same thing at once: the later one gets what it would get afterwards."""

from __future__ import annotations

import re
import threading
import time

import psycopg
import pytest
from support import Connect, fails, one

INSERT = "select memory_insert('tea', source => 'shop', source_key => '1')"
MANY = """select memory_insert_many('[{"content": "new", "source": "shop", "source_key": "0"},
    {"content": "tea", "source": "shop", "source_key": "1"}]')"""


def raced(
    first: psycopg.Connection, other: psycopg.Connection, statement: str, later: str | None = None
) -> psycopg.Error | None:
    """Run a statement in a transaction, and the same or a later one in another connection; return the other's error."""
    errors: list[psycopg.Error] = []

    def run() -> None:
        try:
            other.execute((later or statement).encode())
        except psycopg.Error as error:
            errors.append(error)

    with first.transaction():
        first.execute(statement.encode())
        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.5)
    thread.join()
    return errors[0] if errors else None


@pytest.mark.parametrize("statement", [INSERT, MANY])
def test_a_source_key_taken_meanwhile_is_the_error_of_one_taken_before(
    scripted: None, ana: psycopg.Connection, connect: Connect, statement: str
) -> None:
    error = raced(ana, connect("ana"), statement)
    assert error is not None
    assert error.sqlstate == "23505"
    assert re.fullmatch(
        r"mindful: memory \d has source 'shop' and source_key '[01]'", error.diag.message_primary or ""
    )
    with fails("23505", hint="memory_update") as caught:
        ana.execute(statement.encode())
    assert re.sub(r"\d", "", str(error.diag.message_hint)) == re.sub(
        r"\d", "", str(caught.value.diag.message_hint)
    )
    assert error.diag.constraint_name is None


def test_of_many_elements_the_error_names_the_one_that_was_taken(
    scripted: None, ana: psycopg.Connection, connect: Connect
) -> None:
    error = raced(ana, connect("ana"), INSERT, MANY)
    assert error is not None
    assert error.sqlstate == "23505"
    assert error.diag.message_primary == "mindful: memory 1 has source 'shop' and source_key '1'"
    assert one(ana, "select count(*) from memory") == 1


def test_in_a_transaction_with_one_snapshot_it_is_a_serialization_failure(
    scripted: None, ana: psycopg.Connection, connect: Connect
) -> None:
    other = connect("ana")
    with other.transaction():
        other.execute("set transaction isolation level repeatable read")
        other.execute("select 1 from memory")
        ana.execute(INSERT)
        with fails("40001", hint=None):
            other.execute(INSERT)


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("ana", "select document_insert('Some text.', 'note')"),
        ("ana", "select tool_register('say', 'public.say(integer)', 'Says it.')"),
        ("ana", "select memory_link_insert(1, 2, 'like')"),
        ("ana", "select setting_set('chat_tools', '\"off\"')"),
        ("admin", "select model_register('twice', 'generator', 'scripted', '')"),
        ("admin", "select model_register('twice', 'embedder', 'scripted', '', '{\"dims\": 3}')"),
        ("admin", "select model_register('first-of-' || pg_backend_pid(), 'reranker', 'scripted', '')"),
    ],
)
def test_no_error_of_a_race_names_an_index(
    scripted: None,
    ana: psycopg.Connection,
    db: psycopg.Connection,
    connect: Connect,
    role: str,
    statement: str,
) -> None:
    db.execute(
        "create function public.say(number integer) returns integer language sql immutable return number"
    )
    db.execute("delete from model where kind = 'reranker'")
    ana.execute("select memory_insert('one'), memory_insert('two')")
    error = raced(connect(role), connect(role), statement)
    assert error is None or "constraint" not in str(error)
    if "model_register('twice'" in statement:
        assert error is not None
        assert error.sqlstate == "42710"
    else:
        assert error is None
