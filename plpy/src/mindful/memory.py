"""Memories: their embeddings. What SQL can do of remembering and recalling is in sql/40_memory.sql."""

from __future__ import annotations

from mindful import runtime
from mindful.entry import sql_function
from mindful.ports import Database
from mindful.vector import to_text


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
        f"""select n.id, n.content from new_rows n
            where not exists (select from mindful.{relation} e
                where e.tenant = n.tenant and e.id = n.id and e.content_hash = n.content_hash)"""
    )
    if not rows:
        return
    _, embedder = runtime.embedder(db, name)
    vectors = embedder.embed([row["content"] for row in rows], db)
    db.rows(
        f"""insert into mindful.{relation} (tenant, id, embedding, content_hash)
            select n.tenant, n.id, mindful._vector(e.embedding), n.content_hash
            from unnest($1, $2) e (id, embedding) join new_rows n on n.id = e.id
            on conflict (tenant, id) do update
                set embedding = excluded.embedding, content_hash = excluded.content_hash""",
        ("bigint[]", "text[]"),
        ([row["id"] for row in rows], [to_text(vector) for vector in vectors]),
    )
