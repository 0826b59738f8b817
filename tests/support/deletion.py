"""Deleting as a user, who has no right to DELETE."""

from __future__ import annotations

import psycopg

from support.query import one

_COLUMNS = {"kv_state": "thread_id, model, first"}


def delete(user: psycopg.Connection, table: str, condition: str = "true", *arguments: object) -> int:
    """Delete the user's own rows of a table that meet a condition; return how many."""
    columns = _COLUMNS.get(table, "*")
    keys = f"select jsonb_agg(to_jsonb(t)) from (select {columns} from {table} where {condition}) t"
    deleted: int = one(user, f"select _mindful.delete('{table}', ({keys}))", *arguments)
    return deleted
