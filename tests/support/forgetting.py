"""Talks and what is drawn from them, to be forgotten."""

from __future__ import annotations

import psycopg
from psycopg.types.json import Jsonb

from support.memories import remember
from support.query import one


def talk(connection: psycopg.Connection, *contents: str) -> list[int]:
    """Make a session in which user and assistant take turns."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": content} for n, content in enumerate(contents)]
    rows = connection.execute("select message_insert_many(session_start(), %s)", (Jsonb(messages),))
    return [row[0] for row in rows]


def drawn(connection: psycopg.Connection, content: str, *sources: int, kind: str = "fact") -> int:
    """Remember what rests on other memories."""
    evidence = [
        {"source_id": source, "quote": one(connection, "select content from memory where id = %s", source)}
        for source in sources
    ]
    return remember(connection, content, kind=kind, evidence=evidence)


def forget(connection: psycopg.Connection, arguments: str, *parameters: object) -> dict[tuple[str, str], int]:
    """Forget, and return how many rows of each relation were deleted, changed, kept or mention it."""
    rows = connection.execute(
        f"select relation, action, rows from memory_forget({arguments})", parameters
    ).fetchall()
    counts = {(relation, action): count for relation, action, count in rows}
    assert len(counts) == len(rows)
    return counts


def receipt(connection: psycopg.Connection) -> int:
    """Return the newest receipt."""
    found: int = one(connection, "select max(id) from forget_receipt")
    return found
