"""Embeddings: those that are missing, and those of two models side by side."""

from __future__ import annotations

from collections.abc import Sequence

from mindful_client.calls.statement import DEFAULT, Call, rows, scalar
from mindful_client.types import ComparedMemory


def embedding_enqueue(*, model: str | None = DEFAULT) -> Call[int]:
    """Enqueue the memories that an embedder has not embedded as they are; return how many.

    The caller's own, or an administrator's call those of all.

    Raises NotFoundError (no such embedder), NotReadyError (no default embedder).
    """
    return scalar("embedding_enqueue", locals())


def embedding_compare(
    query: str, *, models: Sequence[str] | None = DEFAULT, k: int = DEFAULT
) -> Call[list[ComparedMemory]]:
    """Return the k memories nearest to a query in each embedder's space, best first.

    Raises InvalidInputError, NotFoundError (no such embedder).
    """
    return rows("embedding_compare", locals(), ComparedMemory)
