"""What router.py writes extensions from: the public objects of a fresh mindful."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import class_row

ROUTE = ("route_number", "route_map", "route_tenant")
ROLES = ("mindful_user", "mindful_reader", "mindful_admin", "mindful_application")

_FUNCTIONS = f"""
    select p.oid::int8, p.proname as name, p.prokind::text as kind, p.proretset as is_set,
        p.prorettype = 'void'::regtype as is_void, l.lanname = 'sql' as is_sql,
        pg_get_function_arguments(p.oid) as arguments,
        pg_get_function_identity_arguments(p.oid) as identity, pg_get_function_result(p.oid) as result,
        coalesce(p.proargnames[1:p.pronargs], '{{}}') as names,
        array(select format_type(t, null) from unnest(p.proargtypes) with ordinality a (t, n) order by n) as types,
        case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end as volatility,
        obj_description(p.oid, 'pg_proc') as comment, p.prorows as rows, p.proisstrict as is_strict,
        array(select r.rolname::text from pg_roles r, aclexplode(p.proacl) a
            where a.grantee = r.oid and a.privilege_type = 'EXECUTE' and r.rolname = any ('{{{",".join(ROLES)}}}')
            order by 1) as roles
    from pg_proc p join pg_language l on l.oid = p.prolang
    where p.pronamespace = 'mindful'::regnamespace and p.prorettype <> 'trigger'::regtype
    order by p.proname, p.pronargs"""
_COLUMNS = """array(
            select array[quote_ident(a.attname), format_type(a.atttypid, a.atttypmod), col_description(c.oid, a.attnum)]
            from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            order by a.attnum
        ) as columns"""
_RELATIONS = rf"""
    select c.relname as name, c.relkind::text as kind, obj_description(c.oid, 'pg_class') as comment,
        {_COLUMNS},
        array(select r.rolname::text from pg_roles r, aclexplode(c.relacl) a
            where a.grantee = r.oid and a.privilege_type = 'SELECT' and r.rolname = any ('{{{",".join(ROLES)}}}')
            order by 1) as roles
    from pg_class c
    where c.relnamespace = 'mindful'::regnamespace and c.relkind in ('r', 'v')
        and 'select' in (
            select 'select' from unnest(array['mindful_user', 'mindful_reader']) r
            where has_table_privilege(r, c.oid, 'select'))
        and c.relname not like 'memory\_embedding\_%'
        and c.relname <> 'kv_state'
    order by c.relname"""
# Types that public functions take or return, and the types of their columns.
_TYPES = f"""
    with recursive used (type) as (
        select unnest(p.proargtypes::oid[] || p.prorettype || coalesce(p.proallargtypes, '{{}}'))
        from pg_proc p where p.pronamespace = 'mindful'::regnamespace and p.prorettype <> 'trigger'::regtype
        union
        select unnest(array[t.typelem] || array(
            select a.atttypid from pg_attribute a
            where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped))
        from used u join pg_type t on t.oid = u.type
    )
    select t.oid::int8, t.typname as name,
        coalesce(obj_description(t.typrelid, 'pg_class'), obj_description(t.oid, 'pg_type')) as comment,
        {_COLUMNS}
    from used u join pg_type t on t.oid = u.type join pg_class c on c.oid = t.typrelid
    where t.typnamespace = 'mindful'::regnamespace
    order by t.oid"""

_ENUMS = """
    select t.typname as name, obj_description(t.oid, 'pg_type') as comment,
        array(select e.enumlabel::text from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder) as labels
    from pg_type t where t.typnamespace = 'mindful'::regnamespace and t.typtype = 'e' order by t.oid"""


@dataclass(frozen=True)
class Enum:
    """An enumerated type."""

    name: str
    comment: str
    labels: list[str]


@dataclass(frozen=True)
class Function:
    """A public function of mindful."""

    oid: int
    name: str
    kind: str
    is_set: bool
    is_void: bool
    is_sql: bool
    arguments: str
    identity: str
    result: str | None
    names: list[str]
    types: list[str]
    volatility: str
    comment: str
    rows: float
    is_strict: bool
    roles: list[str]


@dataclass(frozen=True)
class Relation:
    """A view or table that users may read. The router has a view of it."""

    name: str
    kind: str
    comment: str
    columns: list[list[str | None]]
    roles: list[str]


@dataclass(frozen=True)
class Composite:
    """A composite type."""

    oid: int
    name: str
    comment: str
    columns: list[list[str | None]]


@dataclass(frozen=True)
class Catalog:
    """The public objects of a version."""

    version: str
    functions: list[Function]
    relations: list[Relation]
    enums: list[Enum]
    composites: list[Composite]


def read(dsn: str) -> Catalog:
    """Read the catalog of a new database in a cluster."""
    with fresh(dsn) as connection:
        (version,) = connection.execute(
            "select extversion from pg_extension where extname = 'mindful'"
        ).fetchone() or ("",)
        relations = rows(connection, _RELATIONS, Relation)
        names = {one.name for one in relations}
        composites = [one for one in rows(connection, _TYPES, Composite) if one.name not in names]
        functions, enums = rows(connection, _FUNCTIONS, Function), rows(connection, _ENUMS, Enum)
        return Catalog(version, functions, relations, enums, composites)


@contextmanager
def fresh(dsn: str) -> Iterator[psycopg.Connection]:
    """Connect to a new database with mindful, which is dropped afterwards."""
    name = sql.Identifier(f"mindful_router_{secrets.token_hex(4)}")
    with psycopg.connect(dsn, autocommit=True) as server:
        server.execute(sql.SQL("create database {} template template0").format(name))
        try:
            with psycopg.connect(
                make_conninfo(dsn, dbname=name.as_string().strip('"')), autocommit=True
            ) as connection:
                connection.execute("set client_min_messages = warning")
                connection.execute("create extension mindful cascade")
                connection.execute("set search_path = pg_catalog")
                yield connection
        finally:
            server.execute(sql.SQL("drop database {} with (force)").format(name))


def rows(connection: psycopg.Connection, query: str, row: type[Any]) -> list[Any]:
    """Return the rows of a query."""
    with connection.cursor(row_factory=class_row(row)) as cursor:
        return cursor.execute(query.encode()).fetchall()
