"""Rows that plans read and throw away: estimates know no tenant, so an index may be taken that reads all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import psycopg
import pytest
from psycopg import sql
from support import Connect, one
from support.memories import remember_all

TURNS, FEW = 1000, 400
SETTINGS = {
    "log_min_duration": "0",
    "log_nested_statements": "on",
    "log_analyze": "on",
    "log_timing": "off",
    "log_format": "json",
    "log_level": "notice",
}
CALLS = (
    "select * from memory_recall('What happened in week 77?')",
    "select * from memory_recall('What happened in week 77?', kinds => array['message'])",
    "select llm_chat('What happened in week 77, and where?', {session}, max_tokens => 8)",
    "select memory_insert('The week after week 77 was quiet.')",
    "select * from memory_list(session_id => {session}) limit 5",
    "select * from session_context({session}, 'What happened in week 78?')",
    """select session_continue('[{{"role": "assistant", "content": "In week 77 it rained in place 37."}}]')""",
    "select memory_forget(array[{memory}])",
)


@pytest.fixture
def ana(db: psycopg.Connection, roles: Mapping[str, str], scripted: None, brief: str) -> psycopg.Connection:
    """A superuser's connection with ana's rights, which tells its plans."""
    db.execute("load 'auto_explain'")
    for name, value in SETTINGS.items():
        db.execute(f"set auto_explain.{name} = {value}")
    db.execute(sql.SQL("set role {}").format(sql.Identifier(roles["ana"])))
    return db


def _told(ana: psycopg.Connection) -> str:
    session = one(ana, "select session_start('weeks')")
    said = [
        {"role": ("user", "assistant")[n % 2], "content": f"In week {n} it rained in place {n % 40}."}
        for n in range(TURNS)
    ]
    ana.execute("select message_insert_many(%s, %s)", (session, json.dumps(said)))
    return str(session)


def test_calls_throw_away_few_of_the_rows_that_they_read(ana: psycopg.Connection, connect: Connect) -> None:
    session = _told(ana)
    # A session without a reply of the model is read to its beginning for one.
    ana.execute("select llm_chat('Hello', %s, max_tokens => 8)", (session,))
    memory = one(ana, "select max(id) from memory where session_id = %s", session)
    connect().execute("analyze")  # as autovacuum does
    thrown = [
        (call, rows, node["Index Name"], node.get("Index Cond"), plan["Query Text"])
        for call in CALLS
        for plan in plans(ana, call.format(session=f"'{session}'", memory=memory))
        for node in nodes(plan["Plan"])
        if "Index Name" in node and not node.get("Relation Name", "").startswith("pg_")
        if (rows := node.get("Rows Removed by Filter", 0) * node["Actual Loops"]) > FEW
    ]
    assert thrown == []


def test_a_filter_is_looked_up_once_for_each_memory(ana: psycopg.Connection, connect: Connect) -> None:
    """By estimates of a smaller table, the planner compared all memories with all embeddings."""
    ana.execute("reset role")  # policies lead to other plans
    remember_all(ana, *(f"In week {n} it rained in place {n % 40}." for n in range(600)))
    admin = connect()
    admin.execute("analyze")
    admin.execute(
        "update pg_class set reltuples = 200 where relname like 'memory\\_embedding%' and relkind = 'r'"
    )
    compared = [
        node["Rows Removed by Join Filter"] * node["Actual Loops"]
        for plan in plans(ana, "select * from memory_recall('week 77', metadata => '{}')")
        for node in nodes(plan["Plan"])
        if "Rows Removed by Join Filter" in node
    ]
    assert sum(compared) <= 600


def plans(connection: psycopg.Connection, call: str) -> list[dict[str, Any]]:
    """Run a call, and return the plans of all statements in it."""
    notices: list[str] = []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    connection.execute(call).fetchall()
    found = [json.loads(text.partition("plan:\n")[2]) for text in notices if "plan:\n" in text]
    assert found
    return found


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Walk a plan."""
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)
