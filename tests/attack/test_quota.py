"""No role takes more than its share of what is kept for all."""

from __future__ import annotations

import contextlib

import psycopg
from psycopg import sql
from support import Connect, fails, one


def states(user: psycopg.Connection, columns: str = "", values: str = "", size: int = 900_000) -> None:
    """Insert a large state of a new session."""
    user.execute(
        sql.SQL(
            f"""insert into kv_state (session_id, model, first, fingerprint, tokens, state, mac{columns})
                values (session_start(), 'x', 0, 'x', '{{}}', decode(repeat('ff', %s), 'hex'), ''{values})"""
        ),
        (size,),
    )


def test_states_that_are_newer_than_all_others(connect: Connect) -> None:
    """Inserts kept states that were used last at the end of time, so that others' leave first."""
    bob = connect("bob")
    with fails("42501", hint=None):
        states(bob, ", used_at", ", 'infinity'")
    with fails("42501", hint=None):
        states(bob, ", tenant", ", 'somebody else'")
    states(bob)
    for statement in ("update kv_state set used_at = 'infinity'", "update kv_state set state = ''"):
        with fails("42501", hint=None):
            bob.execute(statement)


def test_states_without_end(connect: Connect, db: psycopg.Connection, ana: psycopg.Connection) -> None:
    """Inserts kept states past the function that keeps them, until there is no room for others'."""
    db.execute("select setting_set('state_tenant_mb', '2', 'global')")
    db.execute("select setting_set('state_total_mb', '3', 'global')")
    states(ana)
    bob = connect("bob")
    for _ in range(8):
        states(bob)
    assert one(db, "select count(*) from kv_state where tenant = %s", bob.info.user) == 2
    assert one(db, "select count(*) from kv_state where tenant = %s", ana.info.user) == 1
    # Rows without a state count, too.
    db.execute("select setting_set('state_tenant_mb', '1', 'global')")
    for _ in range(3):
        bob.execute(
            """insert into kv_state (session_id, model, first, fingerprint, tokens, state, mac)
               select session_start(), 'x', 0, 'x', '{}', '', '' from generate_series(1, 1000)"""
        )
    assert one(db, "select count(*) from kv_state where tenant = %s", bob.info.user) < 2200


def test_a_quota_of_ones_own_choice(connect: Connect, db: psycopg.Connection) -> None:
    """Raises its own quota: by settings of every scope, by rows, by placeholders and by row_security."""
    db.execute("select setting_set('quota_memories', '1', 'global')")
    bob = connect("bob")
    bob.execute("select memory_insert('one')")
    for scope in ("global", "user", "session"):
        with contextlib.suppress(psycopg.Error):
            bob.execute("select setting_set('quota_memories', '100', %s)", (scope,))
    for tenant, scope in (("", "global"), (bob.info.user, "global"), (bob.info.user, "user")):
        with contextlib.suppress(psycopg.Error):
            bob.execute(
                "insert into setting (tenant, scope, key, value) values (%s, %s, 'quota_memories', '100')",
                (tenant, scope),
            )
    bob.execute("set mindful.quota_memories = '100'")
    with fails("53400"):
        bob.execute("select memory_insert('two')")
    bob.execute("set row_security = off")
    with fails("42501", hint=None):
        bob.execute("insert into memory (content) values ('two')")
