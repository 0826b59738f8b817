"""Memories that stay until a writer has stored what refers to them."""

from __future__ import annotations

from collections.abc import Iterable

from mindful.core.ports import Database


def keep(db: Database, ids: Iterable[int]) -> set[int]:
    """Keep memories from being deleted until the transaction ends, and return the ids of those that exist."""
    rows = db.rows("select id from _mindful.memory_keep($1) k (id)", ("bigint[]",), (list(ids),))
    return {row["id"] for row in rows}
