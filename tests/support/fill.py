"""Rows in every table that holds tenants', made up from the columns' types as the catalog tells them."""

from __future__ import annotations

import re
from typing import LiteralString

import psycopg
from psycopg import sql

STATISTICS: LiteralString = """
    select c.oid::regclass::text, s.staattnum::text
    from pg_statistic s join pg_class c on c.oid = s.starelid where c.relnamespace = 'mindful'::regnamespace
    union all
    select s.stxrelid::regclass::text, s.stxname
    from pg_statistic_ext_data d
    join pg_statistic_ext s on s.oid = d.stxoid join pg_class c on c.oid = s.stxrelid
    where c.relnamespace = 'mindful'::regnamespace"""
"""What ANALYZE left of any relation or index in the schema, extended statistics included."""
# By type, as an expression over v, which is 0 in half of the rows and n, the row's number, in the others.
_VALUES = {
    "bigint": "v",
    "bigint[]": "array[v]::bigint[]",
    "boolean": "v = 0",
    "bytea": "v::text::bytea",
    "double precision": "v",
    "double precision[]": "array[v]::double precision[]",
    "integer": "v",
    "integer[]": "array[v]::integer[]",
    "interval": "make_interval(secs => v)",
    "jsonb": "jsonb_build_object('n', v)",
    "real": "v",
    "real[]": "array[v]::real[]",
    "regclass": "v::oid::regclass",
    "text": "'word ' || v",
    "text[]": "array['word ' || v]",
    "timestamp with time zone": "'2026-01-01'::timestamptz + make_interval(days => v)",
    "uuid": "md5(v::text)::uuid",
}
_COLUMNS = """
    select c.oid::regclass::text, a.attname, format_type(a.atttypid, a.atttypmod),
        exists (select from pg_index i where i.indrelid = c.oid and i.indisunique and a.attnum = any (i.indkey))
    from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = 'mindful'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
        and a.attgenerated = '' and a.attname <> 'tenant'
        and exists (select from pg_attribute t where t.attrelid = c.oid and t.attname = 'tenant')
    order by 1, a.attnum"""
_CHECKS = """
    select format('alter table %s drop constraint %I', conrelid::regclass, conname)
    from pg_constraint where connamespace = 'mindful'::regnamespace and contype = 'c'"""


def fill(superuser: psycopg.Connection, tenants: list[str], rows: int = 600) -> list[str]:
    """Give each tenant rows in every table, past checks, keys and triggers; return the tables' names."""
    tables: dict[str, list[tuple[str, str, bool]]] = {}
    for table, *column in superuser.execute(_COLUMNS):
        tables.setdefault(table, []).append((column[0], column[1], column[2]))
    for (statement,) in superuser.execute(_CHECKS).fetchall():
        superuser.execute(statement)
    superuser.execute("set session_replication_role = replica")
    for table, columns in tables.items():
        superuser.execute(
            sql.SQL(
                "insert into {} (tenant, {}) overriding system value"
                " select t, {} from unnest(%s::text[]) with ordinality w (t, tenant),"
                " generate_series(1, %s) n, lateral (select case when n %% 2 = 0 then 0 else n end as c) x"
                " on conflict do nothing"
            ).format(
                sql.SQL(table),
                sql.SQL(", ").join(sql.Identifier(name) for name, _, _ in columns),
                sql.SQL(", ").join(sql.SQL(_value(*column)) for column in columns),
            ),
            (tenants, rows),
        )
    superuser.execute("reset session_replication_role")
    return list(tables)


def _value(_name: str, kind: str, is_unique: bool) -> str:
    number = "(n + 10000 * tenant::integer)::integer" if is_unique else "c"
    dims = re.fullmatch(r"vector\((\d+)\)", kind)
    expression = f"array_fill(v, array[{dims[1]}])::vector" if dims else _VALUES[kind]
    return f"(select {expression} from (select {number} as v) v)"
