"""How many rows another tenant has."""

from __future__ import annotations

import psycopg

TABLES = ("memory", "session", "memory_term", "memory_embedding_scripted_embedder")


def test_rows_that_a_filter_removed(scripted: None, ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Counts another tenant's rows by what EXPLAIN ANALYZE says a filter removed."""
    ana.execute("select memory_insert('The safe opens with 4711.')")
    bob.execute("select memory_insert('The bicycle is in the cellar.')")
    for setting in ("enable_seqscan", "enable_sort", "enable_bitmapscan"):
        bob.execute(f"set {setting} = off")
    for table in TABLES:
        for condition in ("tenant = '{0}'", "tenant = any ('{{{0}}}')", "tenant in ('{0}', '')"):
            query = f"explain (analyze, costs off) select from {table} where " + condition.format(
                ana.info.user
            )
            if "embedding" in table:
                query += f" order by embedding <=> '[{','.join('1' * 64)}]'"
            plan = "\n".join(line for (line,) in bob.execute(query).fetchall())
            assert "Rows Removed" not in plan, plan
