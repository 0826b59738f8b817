"""Where nothing can be written, every call that writes says so before it computes anything."""

from typing import LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import Connect, fails, one
from support.clock import within
from support.memories import contents, remember

READS = {
    "key_use",  # counts where it can
    "llm_classify",
    "llm_classify_many",
    "llm_complete",
    "llm_complete_stream",
    "llm_extract",
    "llm_extract_many",
    "llm_generate",
    "llm_generate_detail",
    "llm_generate_many",
    "llm_generate_stream",
    "llm_if",
    "llm_if_many",
    "llm_stream",
    "model_unload",
    "session_context",
    "slot_status",
    "tenant_set",
}
"""Volatile functions that answer in a read-only transaction."""


@pytest.mark.smoke
def test_every_function_that_writes_refuses_a_read_only_transaction(db: psycopg.Connection) -> None:
    told = refusals(db, "set transaction read only")
    assert len(told) > 55
    assert one(
        db, "select count(distinct proname) from pg_proc where proname = any (%s)", list(READS)
    ) == len(READS)
    right = ("25006", "mindful: the transaction is read-only", True)
    assert {name: found for name, found in told.items() if found != right} == {}


def test_every_function_that_writes_refuses_an_application_without_a_tenant(connect: Connect) -> None:
    told = refusals(connect("application"), "set transaction read write")
    assert len(told) > 40
    right = ("55000", "mindful: no tenant is set", True)
    assert {name: found for name, found in told.items() if found != right} == {}


def refusals(
    connection: psycopg.Connection, before: LiteralString
) -> dict[str, tuple[str | None, str | None, bool] | None]:
    """What each function that writes, and that the role may call, says after a statement."""
    functions = connection.execute(
        """select p.proname, p.prokind = 'p', array(select format_type(t, null) from unnest(p.proargtypes) t)
           from pg_proc p
           where p.pronamespace = 'mindful'::regnamespace and p.provolatile = 'v'
               and p.prokind in ('f', 'p') and p.prorettype <> 'trigger'::regtype
               and has_function_privilege(p.oid, 'execute')
           order by 1"""
    ).fetchall()
    return {
        name: refusal(connection, before, name, is_procedure, types)
        for name, is_procedure, types in functions
        if name not in READS
    }


def refusal(
    db: psycopg.Connection, before: LiteralString, name: str, is_procedure: bool, types: list[str]
) -> tuple[str | None, str | None, bool] | None:
    arguments = ", ".join(f"null::{type_}" for type_ in types)
    try:
        with db.transaction(force_rollback=True):
            db.execute(before)
            db.execute(f"{'call' if is_procedure else 'select'} mindful.{name}({arguments})".encode())
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary, bool(error.diag.message_hint)
    return None


def test_what_only_reads_works_in_a_read_only_transaction(ana: psycopg.Connection) -> None:
    remember(ana, "I like tea.")
    ana.execute("set default_transaction_read_only = on")
    assert ana.execute("select id from memory_prune(max_count => 0, dry_run => true)").fetchall()
    with fails("25006"):
        ana.execute("select memory_prune(max_count => 0)")
    assert one(ana, "select content from memory_recall('tea')") == "I like tea."


def test_a_chat_is_refused_before_it_computes(ana: psycopg.Connection) -> None:
    ana.execute("select llm_chat('Hello', max_tokens => 1)")
    ana.execute("set default_transaction_read_only = on")
    for call in ("llm_chat", "llm_chat_detail", "llm_chat_stream"):
        for _ in within(0.3):
            with fails("25006"):
                ana.execute(f"select {call}('Tell me a long story.', max_tokens => 200)")


def test_a_source_key_that_is_taken_is_named(ana: psycopg.Connection) -> None:
    first = remember(ana, "I like tea.", source="list", source_key="1")
    with fails("23505", rf"memory_update\({first}, ") as caught:
        ana.execute("select memory_insert('I like rye.', source => 'list', source_key => '1')")
    assert f"memory {first} has source 'list' and source_key '1'" in str(caught.value)
    twice = [{"content": text, "source": "list", "source_key": "2"} for text in ("A.", "B.")]
    with fails("23505"):
        ana.execute("select memory_insert_many(%s)", (Jsonb(twice),))
    ana.execute("select memory_insert('I like rye.', source => 'list')")
    assert contents(ana) == ["I like tea.", "I like rye."]


@pytest.mark.parametrize("table", ["pg_class", "information_schema.sql_parts"])
def test_a_catalog_is_not_attached(db: psycopg.Connection, table: str) -> None:
    with fails("42809", "application"):
        db.execute("select memory_attach(%s, 'relname')", (table,))
