"""Memories: their embeddings. What SQL can do of remembering and recalling is in sql/40_memory.sql."""

from __future__ import annotations

from collections.abc import Sequence

from mindful import runtime
from mindful.entry import sql_function
from mindful.ports import Database, Row
from mindful.slot import Turn
from mindful.vector import to_text

_CHUNK = 500
"""Rows whose texts and vectors are in memory at once."""


@sql_function
def memory_embed(db: Database) -> None:
    """Embed the rows of a statement whose content has no embedding yet, by the default embedder."""
    defaults = db.rows(
        "select name, mindful._embedding_table(name) as relation from mindful._model_find('embedder', null)"
    )
    if not defaults:  # full text alone, then
        return
    name, relation = defaults[0]["name"], defaults[0]["relation"]
    rows = db.rows(
        f"""select n.tenant, n.id from new_rows n
            left join lateral (
                select e.content_hash from mindful.{relation} e where e.tenant = n.tenant and e.id = n.id offset 0
            ) e on true
            where e.content_hash is distinct from n.content_hash
            order by n.id"""
    )
    for start in range(0, len(rows), _CHUNK):
        _embed(db, name, relation, rows[start : start + _CHUNK])


def _embed(db: Database, name: str, relation: str, keys: Sequence[Row]) -> None:
    tenants, ids = [key["tenant"] for key in keys], [key["id"] for key in keys]
    rows = db.rows(
        """select m.content
           from rows from (pg_catalog.unnest($1), pg_catalog.unnest($2)) with ordinality k (tenant, id, position)
           cross join lateral (
               select m.content from mindful.memory m where m.tenant = k.tenant and m.id = k.id offset 0
           ) m
           order by k.position""",
        ("text[]", "bigint[]"),
        (tenants, ids),
    )
    _, embedder = runtime.embedder(db, name)
    with Turn(db) as turn:
        vectors = embedder.embed([row["content"] for row in rows], turn)
    db.rows(
        f"""insert into mindful.{relation} (tenant, id, embedding, content_hash)
            select k.tenant, k.id, mindful._vector(k.embedding), m.content_hash
            from rows from (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3))
                k (tenant, id, embedding)
            cross join lateral (
                select m.content_hash from mindful.memory m where m.tenant = k.tenant and m.id = k.id offset 0
            ) m
            on conflict (tenant, id) do update
                set embedding = excluded.embedding, content_hash = excluded.content_hash""",
        ("text[]", "bigint[]", "text[]"),
        (tenants, ids, [to_text(vector) for vector in vectors]),
    )
