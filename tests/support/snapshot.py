"""What two databases are compared by: the catalog's view of the extension, and all of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

_SNAPSHOT = Path(__file__).parents[1] / "upgrade" / "snapshot.sql"


def snapshot(connection: psycopg.Connection) -> list[str]:
    """Every property of every object of the extension, a line each."""
    with connection.transaction(force_rollback=True):
        connection.execute("set local search_path = ''")
        return [line for (line,) in connection.execute(_SNAPSHOT.read_bytes())]


def differences(found: list[str], expected: list[str]) -> list[str]:
    """The lines that are too many (+) and too few (-)."""
    old, new = set(expected), set(found)
    return [
        *(f"+ {line}" for line in found if line not in old),
        *(f"- {line}" for line in expected if line not in new),
    ]


def rows_of(connection: psycopg.Connection) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables in the extension's schema; unlogged ones are caches, which no dump has to keep."""
    tables = connection.execute(
        "select relname from pg_class where relnamespace = 'mindful'::regnamespace and relkind = 'r'"
        " and relpersistence = 'p'"
    ).fetchall()
    query = sql.SQL("select to_jsonb(t) from mindful.{} t order by t::text")
    return {
        table: [row for (row,) in connection.execute(query.format(sql.Identifier(table)))]
        for (table,) in tables
    }
