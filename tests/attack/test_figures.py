"""What one tenant writes breaks no view that shows readers the figures of all tenants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psycopg
import pytest
from psycopg import sql
from support import one

VIEWS = """
    select c.oid::regclass::text from pg_class c
    where c.relnamespace = 'mindful'::regnamespace and c.relkind in ('v', 'm')
        and has_table_privilege(%s, c.oid, 'select')
    order by 1"""
# The tables below these views.
TABLES = """
    with recursive below (relation) as (
        select c.oid from pg_class c
        where c.relnamespace = 'mindful'::regnamespace and c.relkind in ('v', 'm')
            and has_table_privilege(%s, c.oid, 'select')
        union
        select d.refobjid from below b
        join pg_rewrite r on r.ev_class = b.relation
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = r.oid
            and d.refclassid = 'pg_class'::regclass
    )
    select distinct c.oid::regclass::text from below b join pg_class c on c.oid = b.relation
    join pg_attribute t on t.attrelid = c.oid and t.attname = 'tenant'
    where c.relkind = 'r' order by 1"""
# Columns that a user may write, and no key refers to.
COLUMNS = """
    select quote_ident(a.attname), format_type(a.atttypid, null) from pg_attribute a
    where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped and a.attname <> all ('{tenant,id}')
        and (has_column_privilege('mindful_user', a.attrelid, a.attnum, 'insert')
            or has_column_privilege('mindful_user', a.attrelid, a.attnum, 'update'))
        and not exists (
            select from pg_constraint k where k.conrelid = a.attrelid and k.contype = 'f' and a.attnum = any (k.conkey))
    order by a.attnum"""
_NUMBERS = ["1e30", "-1e30", "1e-40", "'NaN'", "'Infinity'", "'-Infinity'", "0"]
_DOUBLES = [*_NUMBERS, "1e308", "-1e308", "1e200", "1e-320"]
_JSON = [
    *("1e400", "1e308", "-1e308", "1e-400", "1e-320", '"word"', "true", "null", "[1]", "{}", "0"),
    '"NaN"',
    '"Infinity"',
]
HOSTILE = {
    "bigint": ["9223372036854775807", "-9223372036854775808", "0"],
    "bigint[]": ["array[9223372036854775807, null]", "'{}'"],
    "boolean": ["true", "false"],
    "double precision": _DOUBLES,
    "double precision[]": [f"array[{value}]::double precision[]" for value in _DOUBLES]
    + ["array[null::float8]", "'{{1}}'"],
    "integer": ["2147483647", "-2147483648", "0"],
    "jsonb": [
        *(f"""'{{"a": {value}, "facts": {value}}}'""" for value in _JSON),
        *(f"'{value}'" for value in _JSON),
    ],
    "real": _NUMBERS,
    "real[]": [f"array[{value}]::real[]" for value in _NUMBERS],
    "text": [
        "''",
        "repeat('x', 10000)",
        "(select string_agg(md5(i::text), '') from generate_series(1, 2000) i)",
    ],
    "text[]": ["'{}'", "array[null::text]", "array[repeat('x', 10000)]", "'{{a}}'"],
    "timestamp with time zone": ["'infinity'", "'-infinity'", "'0001-01-03'", "'9999-12-30'"],
}
"""Values at the ends of each type, as expressions."""

# Rows as a tenant's own use leaves them, each twice: right and wrong, and figures that are added up.
ROWS = """
    select setting_set('embedding_mode', '"async"');
    insert into session (title) values ('x');
    insert into memory (kind, role, session_id, turn, content)
        select 'message', 'assistant', session_id, turn, 'tea ' || turn from session, generate_series(1, 2) turn;
    insert into generation (model, model_sha256, temperature, max_tokens, prompt_sha256, prompt_tokens, cached_tokens,
        completion_tokens, finish_reason, total_ms, confidence, signals, token_logprobs)
        select 'm', 'x', 0, 1, 'x', 1, 0, 1, 'stop', 1, 0.5, '{}', '{}' from generate_series(1, 2);
    insert into calibrator (model, with_memory, signal_tier, features, means, scales, weights, intercept,
        knots_x, knots_y, labels, wrong, metrics, last_outcome, adopted)
        values ('m', false, 0, '{a}', '{0}', '{1}', '{1}', 0, '{}', '{}', 1, 0, '{}', 1, true),
            ('m', true, 0, '{a,b}', '{0,0}', '{1,1}', '{1,1}', 0, '{-1,1}', '{0,1}', 1, 0, '{}', 1, true);
    insert into threshold (calibrator_id, budget_kind, budget, delta, run, delta_spent, status, labels, reason)
        select id, 'answers', 0.1, 0.1, 1, 0.1, 'infeasible', 1, 'x' from calibrator;
    insert into decision (model, with_memory, signal_tier, signals, signal_ms, probability, action, reason, message_id,
        generation_id, calibrator_id, threshold_id, propensity, total_ms)
        select 'm', c.knots_x <> '{}', 0, '{"a": 0.5, "b": 1}', '{"a": 0.5}', 0.5, 'flag', 'x',
            m.id, g.id, c.id, t.id, 0.5, 1
        from memory m
        join (select id, row_number() over (order by id) as turn from generation) g on g.turn = m.turn
        cross join calibrator c join threshold t on t.calibrator_id = c.id;
    insert into outcome (message_id, decision_id, correct, grader)
        select message_id, id, row_number() over (partition by with_memory order by id) = 1, 'user' from decision;
    insert into consolidation (type, status, finished_at)
        select 'extract', 'completed', now() from generate_series(1, 2);
"""


def broken(db: psycopg.Connection, reader: str, views: list[str]) -> Iterator[str]:
    """Yield the views that a reader cannot read."""
    db.execute("select _mindful.consolidation_summary_refresh()")
    for view in views:
        try:
            with db.transaction():
                db.execute(sql.SQL("set local role {}").format(sql.Identifier(reader)))
                db.execute(f"select v::text from {view} v".encode())
        except psycopg.Error as error:
            yield f"{view}: {error.diag.message_primary}"


@pytest.mark.timeout(300)
@pytest.mark.long
def test_no_value_of_one_tenant_breaks_a_view_of_all(
    db: psycopg.Connection, bob: psycopg.Connection, roles: Mapping[str, str]
) -> None:
    """Writes the ends of every type into every column below the views of all tenants, so that readers get errors."""
    bob.execute(ROWS.encode())
    name = roles["reader"]
    views = [view for (view,) in db.execute(VIEWS, (name,))]
    tables = [table for (table,) in db.execute(TABLES, (name,))]
    assert {"decision", "generation", "calibrator", "consolidation", "memory"} <= set(tables)
    assert [
        table
        for table in tables
        if not one(db, f"select count(*) from {table} where tenant = '{bob.info.user}'")
    ] == []
    assert list(broken(db, name, views)) == []
    found, written = [], 0
    db.execute("set session_replication_role = replica")
    for table in tables:
        for column, kind in db.execute(COLUMNS, (table,)).fetchall():
            for value in HOSTILE.get(kind, []):
                with db.transaction(force_rollback=True):
                    try:
                        with db.transaction():
                            db.execute(f"update {table} set {column} = {value}".encode())
                    except psycopg.Error:
                        continue  # The server refuses it.
                    written += 1
                    found += [f"{column} of {table}, {value}: {view}" for view in broken(db, name, views)]
    assert written > 300
    assert found == []
