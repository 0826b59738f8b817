"""The trigger that embeds new and changed memories."""

from __future__ import annotations

from collections.abc import Sequence

from mindful.core.entry import sql_function
from mindful.core.ports import Database, Row
from mindful.core.vector import to_text
from mindful.models import runtime
from mindful.models.runtime import FoundEmbedder

_CHUNK = 500
"""Rows of which texts and vectors are held at the same time."""


@sql_function
def memory_embed(db: Database) -> None:
    """Embed the rows of a statement whose content has no embedding yet, by the default embedder."""
    embedder = runtime.default_embedder(db)
    if embedder is None:  # Recall uses text search only.
        return
    rows = db.rows(
        f"""select n.tenant, n.id, n.content_hash,
                case when pg_catalog.count(*) over () <= {_CHUNK} then n.content end as content
            from new_rows n
            left join lateral (
                select e.content_hash from mindful.{embedder.relation} e
                where e.tenant = n.tenant and e.id = n.id
                offset 0
            ) e on true
            where e.content_hash is distinct from n.content_hash
            order by n.id"""
    )
    for start in range(0, len(rows), _CHUNK):
        _embed(db, embedder, rows[start : start + _CHUNK])


def _embed(db: Database, embedder: FoundEmbedder, keys: Sequence[Row]) -> None:
    tenants, ids = [key["tenant"] for key in keys], [key["id"] for key in keys]
    rows = keys if keys[0]["content"] is not None else _contents(db, tenants, ids)
    vectors = embedder.embed([row["content"] for row in rows])
    # The sub-selects hide the arrays' lengths from the planner, which else makes a plan for each statement.
    db.rows(
        f"""insert into mindful.{embedder.relation} (tenant, id, embedding, content_hash)
            select k.tenant, k.id, _mindful.vector(k.embedding), k.content_hash
            from rows from (
                pg_catalog.unnest((select $1)), pg_catalog.unnest((select $2)),
                pg_catalog.unnest((select $3)), pg_catalog.unnest((select $4))
            ) k (tenant, id, embedding, content_hash)
            cross join lateral (
                select m.content_hash from mindful.memory m where m.tenant = k.tenant and m.id = k.id offset 0
            ) m
            where m.content_hash = k.content_hash
            on conflict (tenant, id) do update
                set embedding = excluded.embedding, content_hash = excluded.content_hash""",
        ("text[]", "bigint[]", "text[]", "text[]"),
        (tenants, ids, [to_text(vector) for vector in vectors], [row["content_hash"] for row in rows]),
    )


def _contents(db: Database, tenants: Sequence[str], ids: Sequence[int]) -> list[Row]:
    return db.rows(
        """select m.content, m.content_hash
           from rows from (pg_catalog.unnest($1), pg_catalog.unnest($2)) with ordinality k (tenant, id, position)
           cross join lateral (
               select m.content, m.content_hash from mindful.memory m
               where m.tenant = k.tenant and m.id = k.id offset 0
           ) m
           order by k.position""",
        ("text[]", "bigint[]"),
        (tenants, ids),
    )
