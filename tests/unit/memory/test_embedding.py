"""Rows of a statement get their embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindful.core.ports import Row
from mindful.memory.embedding import memory_embed
from unit.fakes import Answer, FakeDatabase, scripted, wrapped


class Memories(FakeDatabase):
    """Some rows without an embedding."""

    def __init__(self, count: int, embedder: bool = True) -> None:
        self.batches: list[tuple[list[str], list[int], list[str], list[str]]] = []
        answers: dict[str, Answer] = {
            "from new_rows n": [{"tenant": "ana", "id": at, "content": None} for at in range(count)],
            "insert into mindful.memory_embedding_e": self.insert,
            "select m.content": lambda _tenants, ids: [
                {"content": f"word{at}", "content_hash": f"hash{at}"} for at in ids
            ],
        }
        super().__init__(answers | scripted({"dims": 8} if embedder else None))

    def insert(self, *arguments: Any) -> Sequence[Row]:
        """Keep a batch."""
        self.batches.append(arguments)
        return []


def test_all_rows_are_embedded_in_their_order_and_in_batches() -> None:
    db = Memories(1201)
    wrapped(memory_embed)(db)
    assert [len(ids) for _, ids, *_ in db.batches] == [500, 500, 201]
    assert [at for _, ids, *_ in db.batches for at in ids] == list(range(1201))
    assert all(len({len(column) for column in batch}) == 1 for batch in db.batches)
    assert [hashes[0] for *_, hashes in db.batches] == ["hash0", "hash500", "hash1000"]
    assert len({vector for *_, vectors, _ in db.batches for vector in vectors}) > 1


def test_without_rows_or_an_embedder_nothing_is_written() -> None:
    for db in (Memories(0), Memories(3, embedder=False)):
        wrapped(memory_embed)(db)
        assert db.batches == []
