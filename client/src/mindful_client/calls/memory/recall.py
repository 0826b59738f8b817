"""Memories."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from mindful_client.calls.statement import DEFAULT, Call, Json, rows, scalar, scalars
from mindful_client.types import RecalledMemory


def memory_insert(
    content: str,
    *,
    kind: str = DEFAULT,
    metadata: Json | None = DEFAULT,
    source: str | None = DEFAULT,
    source_key: str | None = DEFAULT,
    importance: float | None = DEFAULT,
    confidence: float | None = DEFAULT,
    level: str | None = DEFAULT,
    valid_from: datetime | None = DEFAULT,
    valid_to: datetime | None = DEFAULT,
    evidence: Sequence[Json] = DEFAULT,
    session_id: UUID | None = DEFAULT,
) -> Call[int]:
    """Remember a text and return its id. Kinds: fact, document, summary, reflection.

    Evidence is a list of {"source_id", "quote"}, as memory_evidence_insert takes them. A session_id binds the memory to
    a session.

    Raises InvalidInputError, NotFoundError (a source or session), AlreadyExistsError (source and source_key taken).
    """
    return scalar("memory_insert", locals())


def memory_insert_many(memories: Sequence[Json]) -> Call[list[int]]:
    """Remember objects with the fields of memory_insert, in batches; return their ids in order. All or none.

    Raises as memory_insert, naming the element.
    """
    return scalars("memory_insert_many", locals(), memories="jsonb")


def memory_recall(
    query: str,
    *,
    k: int = DEFAULT,
    kinds: Sequence[str] | None = DEFAULT,
    metadata: Json | None = DEFAULT,
    session_id: UUID | None = DEFAULT,
    as_of: datetime = DEFAULT,
    max_tokens: int | None = DEFAULT,
    diversity: float = DEFAULT,
    rerank: bool = DEFAULT,
    statements: bool = DEFAULT,
    source: str | None = DEFAULT,
    scope: str | None = DEFAULT,
) -> Call[list[RecalledMemory]]:
    """Return the k memories that best match a query, best first.

    kinds, metadata (with conditions such as {"price": {"$gte": 10}}), session_id, source and scope are filters.
    They are valid at as_of (now), and have about max_tokens tokens at most. Diversity, from 0 to 1, passes over
    what is like something that came before; rerank has the default reranker order the best 50 again.
    statements leaves out messages that only ask and the model's own replies.

    Raises InvalidInputError (empty query, a number out of its range), NotReadyError (no default reranker).
    """
    return rows("memory_recall", locals(), RecalledMemory)


def memory_access_record(ids: Sequence[int]) -> Call[int]:
    """Count that memories were used; return how many were counted: nobody waits for another's count."""
    return scalar("memory_access_record", locals())


def memory_attach(
    relation: str,
    content: str,
    *,
    mode: str = DEFAULT,
    metadata: str | None = DEFAULT,
    tenant: str | None = DEFAULT,
) -> Call[int]:
    """Remember the rows of a table, those it has and those to come; return how many it has.

    content, metadata (a jsonb object) and tenant are SQL expressions over its columns.

    Raises NotFoundError, NotAllowedError, AlreadyExistsError (attached already), InvalidInputError.
    """
    return scalar("memory_attach", locals(), metadata="text")


def memory_detach(relation: str) -> Call[int]:
    """Undo memory_attach, and return how many memories were forgotten.

    Raises NotFoundError (not attached).
    """
    return scalar("memory_detach", locals())


def memory_index_create(tenant: str, *, model: str | None = DEFAULT) -> Call[str]:
    """Make an HNSW index on one tenant's embeddings, and return its name; for administrators.

    Raises NotFoundError (no such embedder), AlreadyExistsError.
    """
    return scalar("memory_index_create", locals())


def memory_index_rebuild() -> Call[int]:
    """Write the full-text index of memories again, by the setting recall_language, and return their number.

    An administrator's call works for all tenants.
    """
    return scalar("memory_index_rebuild", locals())
