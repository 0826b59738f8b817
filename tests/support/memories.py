"""What tests remember, and what is there."""

from __future__ import annotations

import psycopg
from psycopg.types.json import Jsonb

from support.query import one


def remember(connection: psycopg.Connection, content: str, **fields: object) -> int:
    """Remember a text with what is known of it, and return its id."""
    found: int = one(connection, "select memory_insert_many(%s)", Jsonb([{"content": content} | fields]))
    return found


def remember_all(connection: psycopg.Connection, *contents: str) -> list[int]:
    """Remember texts, and return their ids."""
    memories = Jsonb([{"content": content} for content in contents])
    return [row[0] for row in connection.execute("select memory_insert_many(%s)", (memories,))]


def contents(connection: psycopg.Connection) -> list[str]:
    """Return what is remembered, in the order of ids."""
    return [row[0] for row in connection.execute("select content from memory order by id")]
