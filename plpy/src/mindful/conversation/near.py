"""How near texts are to a question, in words and in meaning: stored memories, or texts given with the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mindful.core.ports import Database, Row, Vector
from mindful.core.vector import cosine
from mindful.models.runtime import FoundEmbedder


class Near(Protocol):
    """Compares a question with texts, which are named by ids."""

    def compared(self, question: str, vector: str, ids: Sequence[int]) -> Sequence[Row]:
        """Return id, lacked, held and similarity: the question's words that a text lacks and has, and the cosine."""

    def similarities(self, ids: Sequence[int], vectors: Sequence[str]) -> Sequence[float]:
        """Return the cosine similarity of each text to its vector."""


class Stored:
    """Memories, by their stored words and vectors."""

    def __init__(self, db: Database, embedder: FoundEmbedder) -> None:
        self._db, self._embedder, self._table = db, embedder.name, embedder.relation

    def compared(self, question: str, vector: str, ids: Sequence[int]) -> Sequence[Row]:
        """Compare words and meanings."""
        return self._db.rows(
            f"""select w.id, w.lacked, w.held, coalesce(s.similarity, 0) as similarity
                from _mindful.words_beyond($1, $2) w
                left join lateral (
                    select _mindful.similarity(e.embedding, (select _mindful.vector($3))) as similarity
                    from mindful.{self._table} e
                    where e.tenant = (select _mindful.tenant()) and e.id = w.id
                    offset 0
                ) s on true""",
            ("text", "bigint[]", "text"),
            (question, list(ids), vector),
        )

    def similarities(self, ids: Sequence[int], vectors: Sequence[str]) -> Sequence[float]:
        """Compare meanings; 0 for a memory without a vector. A vector that several have is read once."""
        # The sub-selects hide the arrays' lengths from the planner, which else makes a plan for each call.
        places = {vector: place for place, vector in enumerate(dict.fromkeys(vectors), 1)}
        rows = self._db.rows(
            f"""with given as materialized (
                    select g.place, _mindful.vector(g.vector) as vector
                    from pg_catalog.unnest((select $3)) with ordinality g (vector, place)
                )
                select coalesce(s.similarity, 0) as similarity
                from rows from (pg_catalog.unnest((select $1)), pg_catalog.unnest((select $2)))
                    with ordinality k (id, place, number)
                join given g on g.place = k.place
                left join lateral (
                    select _mindful.similarity(e.embedding, g.vector) as similarity
                    from mindful.{self._table} e
                    where e.tenant = (select _mindful.tenant()) and e.id = k.id
                    offset 0
                ) s on true
                order by k.number""",
            ("bigint[]", "bigint[]", "text[]"),
            (list(ids), [places[vector] for vector in vectors], list(places)),
        )
        return [row["similarity"] for row in rows]

    def newer(self, memory: int, session_id: str | None, most: int, least: float) -> Sequence[Row]:
        """Return statements that are newer than a memory and alike, of the `most` nearest to it."""
        return self._db.rows(
            f"""select m.id, m.content, m.kind, m.role, extract(epoch from m.created_at) as said_at, d.similarity,
                    null::double precision as bm25
                from mindful.memory o
                join mindful.{self._table} e on e.tenant = o.tenant and e.id = o.id
                cross join lateral _mindful.recall_dense(
                    _mindful.vector(e.embedding::text), $2, $3, _mindful.chat_filter($4)
                ) d
                cross join lateral (
                    select m.* from mindful.memory m
                    where m.tenant = (select _mindful.tenant()) and m.id = d.id and d.similarity >= $5
                        and (m.created_at, m.id) > (o.created_at, o.id)
                    offset 0
                ) m
                where o.tenant = (select _mindful.tenant()) and o.id = $1""",
            ("bigint", "text", "integer", "uuid", "double precision"),
            (memory, self._embedder, most, session_id, least),
        )


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
        """Compare meanings."""
        numbers = {vector: [float(one) for one in vector.strip("[]").split(",")] for vector in set(vectors)}
        return [cosine(self._vectors[id_], numbers[vector]) for id_, vector in zip(ids, vectors, strict=True)]
