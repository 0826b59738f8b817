"""Jobs that embed memories, and what they made."""

from __future__ import annotations

import psycopg

from support.query import one

EMBEDDINGS = "memory_embedding_scripted_embedder"


def queued(connection: psycopg.Connection) -> int:
    """Return how many jobs wait."""
    found: int = one(connection, "select count(*) from embedding_job")
    return found


def embedded(connection: psycopg.Connection) -> list[str]:
    """Return the memories whose embedding is of their text."""
    rows = connection.execute(
        f"select content from memory join {EMBEDDINGS} using (tenant, id, content_hash) order by id"
    )
    return [content for (content,) in rows]


def run(connection: psycopg.Connection, arguments: str = "") -> tuple[int, int, int]:
    """Run jobs, and return how many were done, dropped and failed."""
    found: tuple[int, int, int] = one(connection, f"select * from embedding_run({arguments})")
    return found
