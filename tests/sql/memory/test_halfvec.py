"""An embedder whose vectors are stored in half precision serves all that others do."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER, fails, one
from support.memories import contents, remember_all

HALF = "scripted-half"
TABLE = "memory_embedding_scripted_half"


@pytest.fixture
def half(admin: psycopg.Connection) -> None:
    """Make an embedder of half precision the default."""
    options = {"dims": 64, "vector_type": "halfvec"}
    admin.execute("select model_register(%s, 'embedder', 'scripted', '', %s)", (HALF, Jsonb(options)))
    admin.execute("select model_default_set(%s, force => true)", (HALF,))


def column(db: psycopg.Connection, table: str) -> str:
    found = one(
        db,
        """select format_type(atttypid, atttypmod) from pg_attribute
           where attrelid = %s::regclass and attname = 'embedding'""",
        f"mindful.{table}",
    )
    return str(found).rpartition(".")[2]


def test_the_option_decides_the_columns_type(half: None, db: psycopg.Connection) -> None:
    assert column(db, TABLE) == "halfvec(64)"
    assert column(db, "memory_embedding_scripted_embedder") == "vector(64)"


def test_memories_are_recalled_compared_and_joined(half: None, ana: psycopg.Connection) -> None:
    remember_all(ana, "The red fox sleeps.", "A blue bird sings.", "The green frog jumps.")
    found = ana.execute("select content, similarity from memory_recall('The red fox sleeps.')").fetchall()
    assert found[0] == ("The red fox sleeps.", pytest.approx(1, abs=0.01))
    nearest = "select content, similarity from embedding_compare('A blue bird sings.', %s, 1)"
    for name in (HALF, SCRIPTED_EMBEDDER):
        ana.execute("select embedding_enqueue(%s)", (name,))
        ana.execute("select embedding_run()")
        assert ana.execute(nearest, ([name],)).fetchall() == [
            ("A blue bird sings.", pytest.approx(1, abs=0.01))
        ]
    asked = f"select _mindful.similarity(embedding, llm_embed('A blue bird sings.')) from {TABLE} order by id"
    assert [value for (value,) in ana.execute(asked)][1] == pytest.approx(1, abs=0.01)
    ana.execute("""select setting_set('memory_duplicates', '"join_near"')""")
    ana.execute("select memory_insert('the red FOX sleeps')")
    assert len(contents(ana)) == 3
    shown = ana.execute("select content from memory_recall('bird', diversity => 0.5)").fetchall()
    assert ("A blue bird sings.",) in shown


def test_vectors_are_exported_and_imported(
    half: None, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    remember_all(ana, "The red fox sleeps.")
    lines = [line for (line,) in ana.execute("select memory_export(embeddings => true)")]
    bob.execute("select * from memory_import(%s)", (Jsonb(lines),)).fetchall()
    same = f"select count(distinct embedding::text), count(*) from {TABLE}"
    assert one(bob, f"select count(*) from {TABLE}") == 1
    assert ana.execute(same.encode()).fetchall() == bob.execute(same.encode()).fetchall() == [(1, 1)]


def test_a_tenants_index_is_of_half_precision_and_used(
    half: None, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    db.execute(
        """insert into memory (tenant, content)
           select 'crowd', 'note ' || n || ' on subject ' || n % 100 from generate_series(1, 3000) n"""
    )
    db.execute(f"analyze memory, {TABLE}".encode())
    name = one(admin, "select memory_index_create('crowd', %s)", HALF)
    definition = one(db, "select pg_get_indexdef(%s::regclass)", f"mindful.{name}")
    assert "halfvec_cosine_ops" in definition
    assert "ef_construction='128'" in definition
    db.execute("set mindful.tenant = 'crowd'")
    db.execute("set enable_seqscan = off")
    db.execute("set enable_sort = off")
    plan = db.execute(
        f"""explain (costs off) select id from {TABLE} where tenant = 'crowd'
            order by embedding <=> (select llm_embed('note 7', %s)) limit 10""".encode(),
        (HALF,),
    ).fetchall()
    assert name in str(plan)
    found = "select id from _mindful.recall_dense(llm_embed('note 7', %s), %s, 5, null)"
    assert len(db.execute(found, (HALF, HALF)).fetchall()) == 5


def test_another_type_is_refused(admin: psycopg.Connection) -> None:
    with fails("22023", "halfvec"):
        admin.execute(
            "select model_register('other', 'embedder', 'llama_cpp', (select source from model where name = %s), %s)",
            ("all-minilm-l6-v2", Jsonb({"vector_type": "bit"})),
        )
