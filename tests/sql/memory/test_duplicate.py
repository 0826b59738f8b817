"""Facts that are remembered already are joined, where that is wished for."""

from __future__ import annotations

import threading

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER, Connect, fails
from support.deletion import delete
from support.memories import contents

pytestmark = pytest.mark.usefixtures("scripted")


def join(connection: psycopg.Connection, how: str) -> None:
    connection.execute("select setting_set('memory_duplicates', %s)", (Jsonb(how),))


def insert(connection: psycopg.Connection, content: str, more: str = "") -> int:
    row = connection.execute(f"select memory_insert(%s{more})".encode(), (content,)).fetchone()
    assert row is not None
    return int(row[0])


def insert_many(connection: psycopg.Connection, *contents: str) -> list[int]:
    rows = connection.execute(
        "select memory_insert_many(%s)", (Jsonb([{"content": content} for content in contents]),)
    )
    return [row[0] for row in rows]


def repeats(connection: psycopg.Connection) -> dict[int, int]:
    return dict(connection.execute("select id, repeats from memory_duplicate where repeats > 0").fetchall())


def test_duplicates_are_kept_unless_joining_is_wished_for(ana: psycopg.Connection) -> None:
    assert len(set(insert_many(ana, "Tom is a cat.", "Tom is a cat."))) == 2
    with fails("22023", hint="join_near"):
        join(ana, "perhaps")


def test_the_same_text_is_counted_and_not_stored_twice(ana: psycopg.Connection) -> None:
    before = insert(ana, "Rex is a dog.")  # written while duplicates were kept
    join(ana, "join_exact")
    first = insert(ana, "Tom is a cat.")
    assert insert_many(ana, "Tom is a cat.", "Tom is a bird.", "Tom is a cat.", "tom is a CAT") == [
        first,
        first + 2,
        first,
        first + 4,
    ]
    assert insert(ana, "Rex is a dog.") == before
    assert contents(ana) == ["Rex is a dog.", "Tom is a cat.", "Tom is a bird.", "tom is a CAT"]
    assert repeats(ana) == {first: 2, before: 1}
    for table in ("memory_term", f"memory_embedding_{SCRIPTED_EMBEDDER.replace('-', '_')}"):
        row = ana.execute(f"select count(distinct id) from {table}".encode()).fetchone()
        assert row == (4,)
    assert ana.execute("select sum(memories) from memory_count").fetchone() == (4,)


def test_within_one_call_too(ana: psycopg.Connection) -> None:
    join(ana, "join_exact")
    one, _, three = insert_many(ana, "Tom is a cat.", "Rex is a dog.", "Tom is a cat.")
    assert (one, contents(ana)) == (three, ["Tom is a cat.", "Rex is a dog."])


def test_nothing_that_is_new_is_lost(ana: psycopg.Connection) -> None:
    join(ana, "join_exact")
    session = ana.execute("select session_start()").fetchone()
    message = ana.execute("select message_insert(%s, 'user', 'My cat is Tom.')", session).fetchone()
    first = insert(ana, "Tom is a cat.", ', metadata => \'{"topic": "pets", "year": 1}\'')
    evidence = f""", evidence => '[{{"source_id": {(message or (0,))[0]}, "quote": "cat is Tom"}}]'"""
    assert insert(ana, "Tom is a cat.", evidence) == first
    assert ana.execute("select id, quote from memory_evidence").fetchall() == [(first, "cat is Tom")]
    assert insert(ana, "Tom is a cat.", ", metadata => '{\"year\": 1}'") == first
    for more in (
        ", metadata => '{\"year\": 2}'",
        ", valid_from => '2020-01-01'",
        ", source => 'a book'",
        ", kind => 'reflection'",
    ):
        assert insert(ana, "Tom is a cat.", more) != first, more
    ana.execute("select memory_update(%s, 'Tom is a ghost.')", (first,))
    assert insert(ana, "Tom is a cat.") != first  # which is true no more
    with fails("22023", hint=None):
        insert(ana, "Tom is a cat.", ", importance => 2")
    session_id = session and session[0]
    said = [ana.execute("select message_insert(%s, 'user', 'Yes.')", (session_id,)).fetchone() for _ in "12"]
    assert said[0] != said[1]


@pytest.mark.smoke
def test_near_texts_are_joined_by_their_embeddings(ana: psycopg.Connection) -> None:
    join(ana, "join_near")
    first = insert(ana, "Tom is a cat.")
    assert insert_many(ana, "a cat is Tom", "Tom is a bird.", "is Tom a CAT?") == [first, first + 2, first]
    assert repeats(ana) == {first: 2}
    ana.execute("select setting_set('memory_duplicate_similarity', '0.7')")
    assert insert(ana, "Tom is a dog") in (first, first + 2)
    assert contents(ana) == ["Tom is a cat.", "Tom is a bird."]


def test_a_worker_sets_near_texts_aside(ana: psycopg.Connection, admin: psycopg.Connection) -> None:
    """It joins by the settings of the memories' tenant, not by its own."""
    join(ana, "join_near")
    ana.execute("""select setting_set('embedding_mode', '"async"')""")
    first, second, third = insert_many(ana, "Tom is a cat.", "a cat is Tom", "Rex is a dog.")
    assert insert(ana, "Tom is a cat.") == first
    assert admin.execute("select (embedding_run()).embedded").fetchone() == (3,)
    rows = ana.execute("select id, superseded_by, valid_to <= clock_timestamp() from memory order by id")
    assert rows.fetchall() == [(first, None, None), (second, first, True), (third, None, None)]
    assert repeats(ana) == {first: 2}


@pytest.mark.parametrize("how", ["join_exact", "join_near"])
def test_two_writers_at_once_remember_one_fact(connect: Connect, how: str) -> None:
    writers = [connect("ana") for _ in range(2)]
    join(writers[0], how)
    found: list[int] = []
    with writers[0].transaction():
        found.append(insert(writers[0], "Tom is a cat."))
        other = threading.Thread(target=lambda: found.append(insert(writers[1], "Tom is a cat.")))
        other.start()
        other.join(0.5)
        assert other.is_alive()  # until it can know
    other.join()
    assert found[0] == found[1]
    assert contents(writers[0]) == ["Tom is a cat."]


def test_a_writer_that_gives_up_leaves_nothing_to_join(connect: Connect) -> None:
    writers = [connect("ana") for _ in range(2)]
    join(writers[0], "join_exact")
    found: list[int] = []
    with writers[0].transaction(force_rollback=True):
        insert(writers[0], "Tom is a cat.")
        other = threading.Thread(target=lambda: found.append(insert(writers[1], "Tom is a cat.")))
        other.start()
        other.join(0.3)
    other.join()
    assert writers[0].execute("select id from memory").fetchall() == [(found[0],)]
    assert repeats(writers[0]) == {}


def test_an_older_snapshot_stores_no_second_one(connect: Connect) -> None:
    ana, other = connect("ana"), connect("ana")
    join(ana, "join_exact")
    with ana.transaction(force_rollback=True):
        ana.execute("set transaction isolation level repeatable read")
        ana.execute("select count(*) from memory")
        insert(other, "Tom is a cat.")
        with fails("40001", hint=None):
            insert(ana, "Tom is a cat.")
    assert contents(ana) == ["Tom is a cat."]


def test_nobody_learns_of_or_waits_for_anothers(connect: Connect) -> None:
    ana, bob = connect("ana"), connect("bob")
    for connection in (ana, bob):
        join(connection, "join_near")
    with ana.transaction():
        first = insert(ana, "The safe opens with 4711.")
        bob.execute("set statement_timeout = '5s'")
        assert insert(bob, "The safe opens with 4711.") != first
        assert bob.execute("select sum(repeats) from memory_duplicate").fetchone() == (0,)
    with fails("42501", hint=None):
        bob.execute(
            "insert into memory_duplicate (tenant, content_hash) values (%s, md5('x'))", (ana.info.user,)
        )


def test_a_deleted_fact_is_forgotten_and_can_come_again(ana: psycopg.Connection) -> None:
    join(ana, "join_exact")
    first = insert(ana, "Tom is a cat.")
    assert insert(ana, "Tom is a cat.") == first
    delete(ana, "memory")
    assert ana.execute("select count(*) from memory_duplicate").fetchone() == (0,)
    assert insert(ana, "Tom is a cat.") > first
