"""Copy a partition's database to another server, and compare the two."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mindful_client.errors import MindfulError, NotReadyError

Figures = dict[str, tuple[int, int]]
"""Rows and the sum of their hashes, by table."""

# Tables that a dump has: of extensions those that are registered for it, with the condition.
_TABLES = """
    select n.nspname, c.relname,
        exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'tenant' and not a.attisdropped),
        coalesce(x.condition, '')
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    left join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e'
    left join lateral (
        select e.extcondition[i] as condition from pg_extension e, generate_subscripts(e.extconfig, 1) i
        where e.oid = d.refobjid and e.extconfig[i] = c.oid
    ) x on true
    where c.relkind = 'r' and c.relpersistence = 'p' and n.nspname not in ('pg_catalog', 'information_schema')
        and n.nspname not like 'pg\\_%' and (d.objid is null or x.condition is not null)
        and (n.nspname, c.relname) <> ('mindful_route', 'served')
    order by 1, 2"""
_SEQUENCES = """
    select schemaname || '.' || sequencename, coalesce(last_value, 0) from pg_sequences order by 1"""
_ROLES = """
    select r.rolname, r.rolpassword, r.rolcanlogin,
        array(select g.rolname::text from pg_auth_members m join pg_roles g on g.oid = m.roleid
            where m.member = r.oid and g.rolname like 'mindful\\_%')
    from pg_authid r
    where r.rolname not like 'mindful\\_%' and not r.rolsuper and exists (
        select from pg_auth_members m join pg_roles g on g.oid = m.roleid
        where m.member = r.oid and g.rolname like 'mindful\\_%')"""


def copy_roles(source: psycopg.Connection[Any], target: psycopg.Connection[Any]) -> None:
    """Make the roles of mindful that the target's server lacks, with their passwords' verifiers."""
    for name, verifier, logs_in, groups in source.execute(_ROLES).fetchall():
        if target.execute("select from pg_roles where rolname = %s", (name,)).fetchone() is None:
            target.execute(
                sql.SQL("create role {} {} password {}").format(
                    sql.Identifier(name), sql.SQL("login" if logs_in else "nologin"), verifier
                )
            )
        for group in groups:
            target.execute(sql.SQL("grant {} to {}").format(sql.Identifier(group), sql.Identifier(name)))


def copy_settings(source: psycopg.Connection[Any], target: psycopg.Connection[Any]) -> None:
    """Set the source database's settings for the target database."""
    rows = source.execute(
        """select unnest(setconfig) from pg_db_role_setting
           where setrole = 0 and setdatabase = (select oid from pg_database where datname = current_database())"""
    ).fetchall()
    for (setting,) in rows:
        name, _, value = setting.partition("=")
        listed = name in ("search_path", "session_preload_libraries", "local_preload_libraries")
        # A list is stored as its items' quoted text.
        shown = sql.SQL(value) if listed else sql.Literal(value)
        target.execute(
            sql.SQL("alter database {} set {} = {}").format(
                sql.Identifier(target.info.dbname), sql.Identifier(name), shown
            )
        )


def copy_contents(source: str, target: str) -> None:
    """Dump a database and restore it into another one, which is empty."""
    with tempfile.TemporaryFile() as errors:
        dump = subprocess.Popen(
            [
                program("pg_dump"),
                "--format=custom",
                "--compress=0",
                "--no-password",
                f"--dbname={_plain(source)}",
            ],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(source),
        )
        restore = subprocess.run(
            [program("pg_restore"), "--exit-on-error", "--no-password", f"--dbname={_plain(target)}"],
            stdin=dump.stdout,
            stderr=errors,
            env=_environment(target),
            check=False,
        )
        assert dump.stdout is not None
        dump.stdout.close()
        if dump.wait() or restore.returncode:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            raise MindfulError(
                f"the copy failed: {lines[0] if lines else 'no message'}",
                hint="The partition is where it was.",
            )


def program(name: str) -> str:
    """Return the path of a program of PostgreSQL's client, the newest one."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: int(path.split("/")[4]))
    path = found[-1] if found else shutil.which(name)
    if path is None:
        raise NotReadyError(f"{name} is not installed", hint="Install the package postgresql-client.")
    return path


def _plain(dsn: str) -> str:
    """Return a connection string without its password, which other users would see among the processes."""
    return make_conninfo(
        "", **{key: value for key, value in conninfo_to_dict(dsn).items() if key != "password"}
    )


def _environment(dsn: str) -> dict[str, str]:
    password = conninfo_to_dict(dsn).get("password")
    return {**os.environ, **({"PGPASSWORD": str(password)} if password else {})}


def figures(database: psycopg.Connection[Any], tenants: Sequence[str] | None) -> Figures:
    """Return the figures of all tables: of all rows, or of those of tenants and of none."""
    found: Figures = {}
    with database.transaction():
        database.execute("set local row_security = off")
        database.execute("set local search_path = ''")
        for schema, table, has_tenant, condition in database.execute(_TABLES).fetchall():
            where: sql.Composable = sql.SQL(condition or "where true")
            if tenants is not None and has_tenant:
                where = where + sql.SQL(" and (tenant is null or tenant = '' or tenant = any ({}))").format(
                    list(tenants)
                )
            query = sql.SQL(
                "select count(*), coalesce(sum(pg_catalog.hashtextextended(t::text, 0)::numeric), 0) from {} t {}"
            ).format(sql.Identifier(schema, table), where)
            count, total = database.execute(query).fetchone() or (0, 0)
            found[f"{schema}.{table}"] = (count, int(total))
    return found


def sequences(database: psycopg.Connection[Any]) -> dict[str, int]:
    """Return the last values of all sequences."""
    return dict(database.execute(_SEQUENCES).fetchall())


def tenants(database: psycopg.Connection[Any]) -> list[str]:
    """Return the tenants that have rows in a database."""
    found: set[str] = set()
    with database.transaction():
        database.execute("set local row_security = off")
        for schema, table, has_tenant, _ in database.execute(_TABLES).fetchall():
            if has_tenant and schema == "mindful":
                query = sql.SQL("select distinct tenant from {} where tenant <> ''")
                found |= {row[0] for row in database.execute(query.format(sql.Identifier(schema, table)))}
    return sorted(found)


def delete_tenants(database: psycopg.Connection[Any], gone: Sequence[str]) -> int:
    """Delete all rows of tenants, and return their number."""
    deleted = 0
    with database.transaction():
        # The rows live elsewhere: no trigger may note that they were forgotten, and no foreign key may ask.
        database.execute("set local session_replication_role = replica")
        database.execute("set local row_security = off")
        rows = database.execute(
            """select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant'
               where c.relnamespace = 'mindful'::regnamespace and c.relkind = 'r' and not a.attisdropped"""
        ).fetchall()
        for (table,) in rows:
            query = sql.SQL("delete from mindful.{} where tenant = any (%s)").format(sql.Identifier(table))
            deleted += database.execute(query, (list(gone),)).rowcount
    return deleted


def differing(before: Figures, after: Figures) -> list[str]:
    """Return the tables whose figures differ."""
    return [
        f"{table}: {before.get(table, (0, 0))[0]} rows became {after.get(table, (0, 0))[0]}"
        + ("" if before.get(table, (0, 0))[0] != after.get(table, (0, 0))[0] else " with other contents")
        for table in sorted(before.keys() | after.keys())
        if before.get(table) != after.get(table)
    ]
