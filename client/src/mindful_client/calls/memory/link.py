"""What memories have to do with one another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mindful_client.calls.statement import DEFAULT, Call, rows, scalar
from mindful_client.types import MemoryNeighbor


def memory_link_insert(
    source_id: int, target_id: int, relation: str, *, weight: float | None = DEFAULT
) -> Call[bool]:
    """Link two memories, or give their link a new weight; return whether it is new.

    Raises NotFoundError, InvalidInputError.
    """
    return scalar("memory_link_insert", locals(), relation="text")


def memory_link_delete(source_id: int, target_id: int, *, relation: str | None = DEFAULT) -> Call[int]:
    """Delete the link of a relation, or all, from one memory to another; return how many there were.

    Raises NotFoundError.
    """
    return scalar("memory_link_delete", locals(), relation="text")


def memory_neighbors(
    id: int,
    *,
    depth: int = DEFAULT,
    relations: Sequence[str] | None = DEFAULT,
    direction: str = DEFAULT,
    k: int = DEFAULT,
    fanout: int = DEFAULT,
    as_of: datetime | None = DEFAULT,
) -> Call[list[MemoryNeighbor]]:
    """Return the memories that links lead to from one, nearest first.

    Raises NotFoundError, InvalidInputError.
    """
    return rows("memory_neighbors", locals(), MemoryNeighbor)
