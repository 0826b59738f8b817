"""What an administrator's retention does to others' memories."""

from __future__ import annotations

import psycopg
import pytest
from support import fails, one


@pytest.fixture
def old(scripted: None, db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Two tenants with old facts, one of each new."""
    for connection in (ana, bob):
        connection.execute('select memory_insert_many(\'[{"content": "one"}, {"content": "two"}]\')')
        db.execute("update memory set created_at = now() - interval '100 days' where content = 'one'")


def test_a_retention_for_all_without_a_look(
    old: None, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Sets a retention for all tenants without confirming how many rows go, by the function and the table."""
    for confirmed in ("null", "0", "1"):
        with fails("55000", hint="confirmed_rows => 2") as caught:
            admin.execute(
                f"select setting_set('retention_fact_days', '50', 'global', confirmed_rows => {confirmed})"
            )
        assert "2 rows of 2 tenants" in str(caught.value)
        with fails("55000"):
            admin.execute(
                f"""insert into setting (tenant, scope, key, value, confirmed_rows)
                    values ('', 'global', 'retention_fact_days', '50', {confirmed})"""
            )
    with fails("55000", hint="confirmed_rows => 2"):
        admin.execute("select setting_set('retention_memories', '1', 'global')")
    assert one(db, "select count(*) from memory") == 4


def test_a_retention_for_all_that_nobody_sees(
    old: None, admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    """Removes rows of others without a trace of who asked for it."""
    admin.execute("select setting_set('retention_fact_days', '50', 'global', confirmed_rows => 2)")
    admin.execute("select * from retention_run()")
    assert ana.execute("select content from memory").fetchall() == [("two",)]
    name = admin.info.user
    assert ana.execute(
        "select scope, changed_by, confirmed_rows from setting where key = 'retention_fact_days'"
    ).fetchall() == [("global", name, 2)]
    assert one(ana, "select settings from forget_receipt") == [
        {"key": "retention_fact_days", "value": 50, "scope": "global", "changed_by": name}
    ]


def test_counting_the_rows_of_all(old: None, bob: psycopg.Connection) -> None:
    """Counts the rows of other tenants by the check of a retention."""
    for call in (
        "_mindful.retention_count('retention_fact_days', '1')",
        "_mindful.retention_check('retention_fact_days', '1', 0)",
    ):
        try:
            found = bob.execute(f"select {call}").fetchall()
        except psycopg.errors.InsufficientPrivilege:
            continue
        assert found == [("",)], call
    with fails("42501", hint=None):
        bob.execute("select setting_set('retention_fact_days', '50', 'global', confirmed_rows => 10)")
