"""Counting what is used."""

import psycopg
from support import Connect
from support.memories import remember_all


def test_counting_accesses_waits_for_nobody(
    ana: psycopg.Connection, connect: Connect, bob: psycopg.Connection
) -> None:
    one, two = remember_all(ana, "One.", "Two.")
    (theirs,) = remember_all(bob, "Three.")
    other = connect("ana")
    other.execute("set statement_timeout = '5s'")
    count = "select memory_access_record(%s)"
    with ana.transaction():
        assert ana.execute(count, ([one, theirs, 0],)).fetchone() == (1,)
        assert other.execute(count, ([one, two],)).fetchone() == (1,)
    assert other.execute(count, ([one],)).fetchone() == (1,)
    assert ana.execute("select id, access_count from memory_access order by id").fetchall() == [
        (one, 2),
        (two, 1),
    ]
    assert bob.execute("select count(*) from memory_access").fetchone() == (0,)
    with ana.transaction():
        ana.execute("set transaction isolation level repeatable read")
        ana.execute("select 1")
        assert ana.execute(count, ([one],)).fetchone() == (0,)
    assert ana.execute("select memory_access_record(null)").fetchone() == (0,)
