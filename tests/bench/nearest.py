"""The memories nearest to queries, found by comparing with all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from synthetic import COPY_END, COPY_HEAD, TABLE

_AT_ONCE = 20_000
"""Rows that are compared at once."""


@dataclass(frozen=True)
class Query:
    """Some words of a memory, and a vector near its own."""

    tenant: str
    text: str
    vector: str


def nearest_of_all(
    db: psycopg.Connection, asked: Sequence[Query], conditions: Mapping[str, str], most: int
) -> dict[str, list[set[int]]]:
    """Find the memories nearest to each query under each condition, comparing it with every one of its tenant.

    All queries of a tenant share a pass over its rows: alone, each of ten million took half a minute.
    """
    found: dict[str, list[set[int]]] = {name: [set() for _ in asked] for name in conditions}
    for tenant in {query.tenant for query in asked}:
        own = [at for at, query in enumerate(asked) if query.tenant == tenant]
        vectors = np.array([json.loads(asked[at].vector) for at in own], dtype=np.float32)
        best = {
            name: (np.empty((len(own), 0), np.float32), np.empty((len(own), 0), np.int64))
            for name in conditions
        }
        for rows in _rows(db, tenant, vectors.shape[1], [*conditions.values()]):
            embeddings = rows["embedding"].astype(np.float32)
            cosines = vectors @ (embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)).T
            for at, name in enumerate(conditions):
                passes = rows["passes"]["is"][:, at]
                ids = np.tile(rows["id"][passes].astype(np.int64), (len(own), 1))
                before = best[name]
                best[name] = _first(
                    np.hstack([before[0], cosines[:, passes]]), np.hstack([before[1], ids]), most
                )
        for name in conditions:
            for at, ids_of_one in zip(own, best[name][1], strict=True):
                found[name][at] = {int(id_) for id_ in ids_of_one}
    return found


def _first(
    scores: NDArray[np.float32], ids: NDArray[np.int64], most: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Keep the ids with the highest scores of each row."""
    if scores.shape[1] <= most:
        return scores, ids
    kept = np.argpartition(-scores, most, axis=1)[:, :most]
    return np.take_along_axis(scores, kept, 1), np.take_along_axis(ids, kept, 1)


def _rows(
    db: psycopg.Connection, tenant: str, dims: int, conditions: Sequence[str]
) -> Iterator[NDArray[Any]]:
    """Read a tenant's ids and embeddings, and which conditions they pass, as COPY's binary format has them."""
    half = db.execute(f"select pg_typeof(embedding)::text ~ 'halfvec' from {TABLE} limit 1").fetchone()
    row = np.dtype(
        [
            *(("fields", ">i2"), ("id_size", ">i4"), ("id", ">i8"), ("size", ">i4"), ("head", ">i4")),
            ("embedding", ">f2" if half == (True,) else ">f4", (dims,)),
            ("passes", [("size", ">i4"), ("is", "?")], (len(conditions),)),
        ]
    )
    statement = f"""copy (select e.id, e.embedding, {", ".join(conditions)}
        from {TABLE} e join memory m using (tenant, id)
        where e.tenant = '{tenant}') to stdout (format binary)"""
    head, rest, wanted = len(COPY_HEAD), bytearray(), _AT_ONCE * row.itemsize
    with db.cursor().copy(statement.encode()) as copy:
        for part in copy:
            rest += part
            if len(rest) > head + wanted:
                yield np.frombuffer(bytes(rest[head : head + wanted]), row)
                del rest[: head + wanted]
                head = 0
    yield np.frombuffer(bytes(rest[head : -len(COPY_END)]), row)
