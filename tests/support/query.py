"""What a query tells."""

from __future__ import annotations

from typing import Any

import psycopg


def one(connection: psycopg.Connection, query: str, *arguments: object) -> Any:
    """Return the first row, or what it holds if that is one value."""
    row = connection.execute(query, arguments).fetchone()
    assert row is not None
    return row[0] if len(row) == 1 else row
