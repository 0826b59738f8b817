"""Embeddings that are missing or stale are found, and one embedder takes another's place."""

from __future__ import annotations

import psycopg
import pytest
from support import EMBEDDER, SCRIPTED_EMBEDDER, fails, one
from support.deletion import delete
from support.memories import remember_all

FACTS = [
    "Rex is a beagle who sleeps in the kitchen.",
    "Marta moved to Toronto.",
    "Peanuts make my throat swell.",
]
STATUS = "select embedded, missing, stale, queued, failed, oldest_wait > '0' from embedding_status where model = %s"


@pytest.mark.usefixtures("scripted")
def test_a_sweep_finds_what_came_without_an_embedding(
    ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    remember_all(ana, *FACTS)
    remember_all(bob, *FACTS[:1])
    assert one(admin, "select embedding_enqueue()") == 0
    db.execute("set row_security = off")
    db.execute("insert into memory (tenant, content) values (%s, 'Restored.')", (ana.info.user,))
    db.execute("update memory set content = 'Rex is dead.' where content ~ 'Rex'")
    db.execute("set row_security = on")
    db.execute("set session_replication_role = replica")
    db.execute("insert into memory (tenant, content) values (%s, 'Replicated.')", (bob.info.user,))
    assert ana.execute(STATUS, (SCRIPTED_EMBEDDER,)).fetchone() == (2, 1, 1, 0, 0, None)
    assert one(bob, "select embedding_enqueue()") == 2
    assert one(admin, "select embedding_enqueue()") == 2
    assert one(admin, "select embedding_enqueue()") == 0
    assert ana.execute(STATUS, (SCRIPTED_EMBEDDER,)).fetchone() == (2, 1, 1, 2, 0, True)
    admin.execute("select embedding_run()")
    assert ana.execute(STATUS, (SCRIPTED_EMBEDDER,)).fetchone() == (4, 0, 0, 0, 0, None)
    assert bob.execute(STATUS, (SCRIPTED_EMBEDDER,)).fetchone() == (2, 0, 0, 0, 0, None)


def test_a_sweep_finds_what_was_there_before_an_embedder(
    db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    db.execute("update model set is_default = false where kind = 'embedder'")
    remember_all(ana, *FACTS)
    with fails("55000", hint="model_register"):
        ana.execute("select embedding_enqueue()")
    with fails("42704"):
        ana.execute("select embedding_enqueue('nobody')")
    db.execute("update model set is_default = true where name = %s", (SCRIPTED_EMBEDDER,))
    assert one(ana, "select embedding_enqueue()") == 3


def test_an_embedder_is_filled_beside_the_default_one_and_takes_its_place(
    admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    remember_all(ana, *FACTS)
    with fails("55000", hint="embedding_enqueue"):
        admin.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    assert one(admin, "select embedding_enqueue(%s)", SCRIPTED_EMBEDDER) == 3
    with fails("55000"):
        admin.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    admin.execute("select embedding_run()")
    assert one(ana, "select content from memory_recall('puppy', 1)") == FACTS[0]
    admin.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    row = ana.execute("select content, similarity from memory_recall('beagle', 1)").fetchone()
    assert row is not None
    assert row[0] == FACTS[0]
    assert row[1] == pytest.approx(9**-0.5, abs=0.01)  # one word of nine, as the script has it
    admin.execute("select model_default_set(%s)", (EMBEDDER,))


def test_what_is_written_while_an_embedder_takes_over_is_embedded_by_it(
    admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    remember_all(ana, *(f"note {number}" for number in range(100)))
    admin.execute("select embedding_enqueue(%s)", (SCRIPTED_EMBEDDER,))
    admin.execute("select embedding_run()")
    remember_all(ana, "late")
    admin.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    assert ana.execute(STATUS, (SCRIPTED_EMBEDDER,)).fetchone() == (100, 1, 0, 1, 0, True)
    admin.execute("select embedding_run()")
    assert ana.execute(STATUS, (SCRIPTED_EMBEDDER,)).fetchone() == (101, 0, 0, 0, 0, None)


def test_two_embedders_are_compared_by_one_query(admin: psycopg.Connection, ana: psycopg.Connection) -> None:
    remember_all(ana, *FACTS)
    ana.execute("select embedding_enqueue(%s)", (SCRIPTED_EMBEDDER,))
    ana.execute("select embedding_run()")
    best = "select model, content from embedding_compare('Where does my puppy lie down?') where rank = 1 order by model"
    assert ana.execute(best).fetchall() == [(EMBEDDER, FACTS[0]), (SCRIPTED_EMBEDDER, FACTS[2])]
    rows = ana.execute(
        "select rank, similarity from embedding_compare('Which puppy?', array[%s], 2)", (EMBEDDER,)
    ).fetchall()
    assert [rank for rank, _ in rows] == [1, 2]
    assert 1 > rows[0][1] > rows[1][1]
    for arguments, sqlstate in (
        ("null", "22004"),
        ("'x', '{nobody}'", "42704"),
        ("'x', null, 0", "22023"),
        ("' '", "22023"),
    ):
        with fails(sqlstate):
            ana.execute(f"select * from embedding_compare({arguments})".encode())


@pytest.mark.usefixtures("scripted")
def test_users_see_how_far_their_own_are_and_readers_all(
    ana: psycopg.Connection, bob: psycopg.Connection, reader: psycopg.Connection
) -> None:
    remember_all(ana, *FACTS)
    remember_all(bob, *FACTS[:1])
    query = "select tenant, model, embedded, missing from embedding_status order by 1, 2"
    own = [(ana.info.user, EMBEDDER, 0, 3), (ana.info.user, SCRIPTED_EMBEDDER, 3, 0)]
    assert ana.execute(query).fetchall() == own
    others = [(bob.info.user, EMBEDDER, 0, 1), (bob.info.user, SCRIPTED_EMBEDDER, 1, 0)]
    assert reader.execute(query).fetchall() == sorted(own + others)
    with fails("42501", hint=None):
        reader.execute("select * from memory")
    assert ana.execute("select content from embedding_compare('beagle', k => 100)").fetchall()
    delete(bob, "memory")
    assert bob.execute("select * from embedding_compare('beagle', k => 100)").fetchall() == []
