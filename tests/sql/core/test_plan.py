"""Plans of the extension's own statements: none is worth compiling, so none may be compiled."""

from __future__ import annotations

from typing import LiteralString

import psycopg
import pytest
from support import Connect, one
from support.memories import remember_all


def test_a_function_that_turns_a_kind_of_plan_off_turns_compilation_off(db: psycopg.Connection) -> None:
    """A plan that is turned off costs ten billion where there is no other, and such plans are compiled."""
    turned_off = db.execute(
        """select p.oid::regprocedure::text, p.proconfig @> '{jit=off}' from pg_proc p
           where p.pronamespace::regnamespace::text ~ 'mindful$'
               and exists (select from unnest(p.proconfig) c where c ~ '^enable_.*=off$')"""
    ).fetchall()
    assert len(turned_off) > 20
    assert [name for name, compiles_nothing in turned_off if not compiles_nothing] == []


@pytest.mark.parametrize(
    "statement",
    [
        "select memory_forget(array(select id from memory limit 1))",
        "with gone as (delete from memory returning id) select count(*) from gone",
        "with gone as (delete from note returning id) select count(*) from gone",
        "with new as (update note set body = body || '!' returning id) select count(*) from new",
        "select count(*) from memory_recall('a dog')",
        "select session_delete(session_id) from session",
        "select count(*) from memory_list()",
    ],
)
def test_a_first_call_compiles_nothing(
    scripted: None, db: psycopg.Connection, connect: Connect, statement: LiteralString
) -> None:
    """A connection keeps the plans that its first call makes, so what was turned off then stays off."""
    remember_all(db, "I have a dog.", "I have a cat.")
    db.execute("select session_start()")
    db.execute("create table public.note (id integer primary key, body text)")
    db.execute("select memory_attach('note', 'body')")
    db.execute("insert into note select i, 'Note ' || i from generate_series(1, 3) i")
    fresh, shown = connect(), list[str]()
    fresh.add_notice_handler(lambda notice: shown.append(notice.message_primary or ""))
    fresh.execute("load 'auto_explain'")
    for setting in ("log_min_duration = 0", "log_analyze = on", "log_nested_statements = on"):
        fresh.execute(f"set auto_explain.{setting}")
    fresh.execute("set client_min_messages = log")
    one(fresh, statement)
    assert sum("Query Text" in plan for plan in shown) > 1
    assert [plan for plan in shown if "JIT:" in plan] == []
