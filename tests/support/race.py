"""Two connections at once."""

from __future__ import annotations

import threading
import time

import psycopg


def raced(
    first: psycopg.Connection, other: psycopg.Connection, statement: str, later: str | None = None
) -> psycopg.Error | None:
    """Run a statement in a transaction, and the same or a later one in another connection; return the other's error."""
    errors: list[psycopg.Error] = []

    def run() -> None:
        try:
            other.execute((later or statement).encode())
        except psycopg.Error as error:
            errors.append(error)

    with first.transaction():
        first.execute(statement.encode())
        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(0.5)
    thread.join()
    return errors[0] if errors else None
