"""Two connections that enter the same thing at once: the later one gets what it would get afterwards."""

from __future__ import annotations

import re

import psycopg
import pytest
from support import Connect, fails, one
from support.race import raced

INSERT = "select memory_insert('tea', source => 'shop', source_key => '1')"
MANY = """select memory_insert_many('[{"content": "new", "source": "shop", "source_key": "0"},
    {"content": "tea", "source": "shop", "source_key": "1"}]')"""


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


FORGET = "select memory_forget(ids => '{%s}')"
END = "select session_delete(session_id) from session"
REFERRING = {
    "select memory_link_insert(1, 3, 'like')": FORGET % 1,
    "select memory_link_insert(3, 1, 'like')": FORGET % 1,
    "select memory_evidence_insert(3, 1, 'tea')": FORGET % 1,
    """select memory_insert('Tea.', evidence => '[{"source_id": "1", "quote": "tea"}]')""": FORGET % 1,
    "select memory_update(3, content => 'milk')": FORGET % 3,
    "select answer_label(2, true)": FORGET % 2,
    "select self_review(2)": FORGET % 2,
    "select memory_insert('Tea.', session_id => session_id) from session": END,
    "select setting_set('chat_window', '8', 'session', session_id) from session": END,
    "select message_insert(session_id, 'user', 'Hi') from session": END,
}


@pytest.mark.parametrize(("statement", "forget"), REFERRING.items())
def test_what_is_forgotten_meanwhile_is_as_unknown_as_what_was_forgotten_before(
    scripted: None, ana: psycopg.Connection, connect: Connect, statement: str, forget: str
) -> None:
    ana.execute(
        """select message_insert_many(session_start(), '[{"role": "user", "content": "I like tea."},
            {"role": "assistant", "content": "Noted."}]')"""
    )
    assert one(ana, "select memory_insert('coffee')") == 3
    error = raced(ana, connect("ana"), forget, statement)
    assert error is not None
    assert error.sqlstate == "42704"
    assert error.diag.message_hint


@pytest.mark.parametrize(
    "statement",
    [
        FORGET % 3,
        END,
        "select memory_prune(max_count => 0)",
        "select document_delete('tea.md')",
        "select retention_run()",
    ],
)
def test_one_transaction_of_a_tenant_forgets_at_a_time(
    scripted: None, ana: psycopg.Connection, connect: Connect, statement: str
) -> None:
    for user in (ana, connect("bob")):
        user.execute("""select message_insert(session_start(), 'user', 'I like tea.')""")
        user.execute(
            "select memory_insert('coffee'), document_insert(content => 'Tea is hot.', source => 'tea.md')"
        )
        user.execute("select memory_insert('old'), setting_set('retention_memories', '1')")
    other, bob = connect("ana"), connect("bob")
    with ana.transaction():
        ana.execute("select memory_forget(ids => array(select min(id) from memory))")
        for user in (other, bob):
            user.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(statement.encode())
        bob.execute(statement.replace("'{3}'", "array(select max(id) from memory)").encode())
    other.execute(statement.encode())
