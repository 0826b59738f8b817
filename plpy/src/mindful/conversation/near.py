"""How near texts are to a question, in words and in meaning: stored memories, or texts given with the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import dist
from typing import Protocol

from mindful.core.ports import Database, Row, Vector
from mindful.models.runtime import FoundEmbedder


class Near(Protocol):
    """Compares a question with texts, which are named by ids."""

    def compared(self, question: str, vector: str, ids: Sequence[int]) -> Sequence[Row]:
        """Return id, lacked, held and similarity: the question's words that a text lacks and has, and the cosine."""

    def similarities(self, ids: Sequence[int], vectors: Sequence[str]) -> Sequence[float]:
        """Return the cosine similarity of each text to its vector."""


class Stored:
    """Memories, by their stored words and vectors."""

    def __init__(self, db: Database, embedder: str) -> None:
        self._db, self._embedder = db, embedder

    def compared(self, question: str, vector: str, ids: Sequence[int]) -> Sequence[Row]:
        """Compare words and meanings."""
        return self._db.rows(
            """select w.id, w.lacked, w.held, s.similarity
               from _mindful.words_beyond($1, $2) w
               join unnest($2, _mindful.recall_similarities($3, $2, array[$4]))
                   s (id, similarity) using (id)""",
            ("text", "bigint[]", "text", "text"),
            (question, list(ids), self._embedder, vector),
        )

    def similarities(self, ids: Sequence[int], vectors: Sequence[str]) -> Sequence[float]:
        """Compare meanings."""
        found: Sequence[float] = self._db.one(
            "select _mindful.recall_similarities($1, $2, $3) as found",
            ("text", "bigint[]", "text[]"),
            (self._embedder, list(ids), list(vectors)),
        )["found"]
        return found


class Given:
    """Texts that are not stored."""

    def __init__(self, db: Database, embedder: FoundEmbedder, contents: Mapping[int, str]) -> None:
        self._db, self._contents = db, contents
        vectors = embedder.embed([*contents.values()])
        self._vectors: Mapping[int, Vector] = dict(zip(contents, vectors, strict=True))

    def compared(self, question: str, vector: str, ids: Sequence[int]) -> Sequence[Row]:
        """Compare words and meanings."""
        rows = self._db.rows(
            "select id, lacked, held from _mindful.words_lacking($1, $2, $3)",
            ("text", "bigint[]", "text[]"),
            (question, list(ids), [self._contents[id_] for id_ in ids]),
        )
        alike = dict(zip(ids, self.similarities(ids, [vector] * len(ids)), strict=True))
        return [{**row, "similarity": alike[row["id"]]} for row in rows]

    def similarities(self, ids: Sequence[int], vectors: Sequence[str]) -> Sequence[float]:
        """Compare meanings. The cosine of unit vectors is 1 - distance ** 2 / 2."""
        numbers = {vector: [float(one) for one in vector.strip("[]").split(",")] for vector in set(vectors)}
        return [
            1 - dist(self._vectors[id_], numbers[vector]) ** 2 / 2
            for id_, vector in zip(ids, vectors, strict=True)
        ]
