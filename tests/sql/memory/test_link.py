"""What memories have to do with one another."""

from itertools import pairwise

import psycopg
import pytest
from support import Connect, fails, one
from support.memories import remember_all


def link(
    connection: psycopg.Connection, source: int, target: int, relation: str = "about", weight: float = 1
) -> bool:
    found: bool = one(
        connection, "select memory_link_insert(%s, %s, %s, %s::real)", source, target, relation, weight
    )
    return found


def neighbors(connection: psycopg.Connection, memory_id: int, options: str = "") -> list[int]:
    rows = connection.execute(
        f"select id from memory_neighbors(%s{options and ', ' + options})", (memory_id,)
    )
    return [row[0] for row in rows]


def test_a_link_inserted_again_has_the_new_weight(ana: psycopg.Connection) -> None:
    a, b = remember_all(ana, "Ana.", "Bern.")
    assert link(ana, a, b, "lives_in", 0.5)
    assert not link(ana, a, b, "lives_in", 0.9)
    assert link(ana, b, a, "lives_in")
    assert link(ana, a, b, "works_in")
    assert ana.execute("select source_id, relation, weight from memory_link order by 1, 2").fetchall() == [
        (a, "lives_in", pytest.approx(0.9)),
        (a, "works_in", 1),
        (b, "lives_in", 1),
    ]
    assert one(ana, "select memory_link_delete(%s, %s, 'lives_in')", a, b) == 1
    assert one(ana, "select memory_link_delete(%s, %s, 'lives_in')", a, b) == 0
    assert link(ana, a, b, "lives_in")
    assert one(ana, "select memory_link_delete(%s, %s)", a, b) == 2
    assert one(ana, "select count(*) from memory_link") == 1


def test_neighbors_come_nearest_and_strongest_first(ana: psycopg.Connection) -> None:
    ids = remember_all(ana, "Ana.", "Bern.", "Chess.", "Dance.", "Emil.")
    a, b, c, d, e = ids
    link(ana, a, b, "lives_in", 0.5)
    link(ana, c, a, "liked_by", 0.75)
    link(ana, b, d, "offers", 0.5)
    link(ana, c, d, "beside", 0.5)
    link(ana, d, e, "led_by")
    rows = ana.execute("select * from memory_neighbors(%s, 3)", (a,)).fetchall()
    assert rows == [
        (c, "Chess.", "fact", "liked_by", 0.75, 1, [a, c]),
        (b, "Bern.", "fact", "lives_in", 0.5, 1, [a, b]),
        (d, "Dance.", "fact", "beside", 0.375, 2, [a, c, d]),  # not by Bern: that path is weaker
        (e, "Emil.", "fact", "led_by", 0.375, 3, [a, c, d, e]),
    ]
    assert neighbors(ana, a) == [c, b]
    assert neighbors(ana, a, "3, k => 2") == [c, b]
    assert neighbors(ana, a, "3, direction => 'out'") == [b, d, e]
    assert neighbors(ana, a, "3, direction => 'in'") == [c]
    assert neighbors(ana, a, "3, relations => '{lives_in,offers}'") == [b, d]
    assert neighbors(ana, a, "3, relations => '{}'") == []
    assert neighbors(ana, e, "5") == [d, b, c, a]


def test_circles_end(ana: psycopg.Connection) -> None:
    ids = remember_all(ana, *(f"Number {n}." for n in range(6)))
    for source in ids:
        for target in ids:
            if source != target:
                link(ana, source, target)
    assert sorted(neighbors(ana, ids[0], "5")) == ids[1:]
    assert all(row[0] == 1 for row in ana.execute("select depth from memory_neighbors(%s, 5)", (ids[0],)))


def test_depth_is_limited(ana: psycopg.Connection) -> None:
    ids = remember_all(ana, *(f"Number {n}." for n in range(8)))
    for source, target in pairwise(ids):
        link(ana, source, target)
    for depth in range(1, 6):
        assert neighbors(ana, ids[0], str(depth)) == ids[1 : depth + 1]


def test_of_many_links_the_strongest_are_followed(ana: psycopg.Connection) -> None:
    hub, *spokes = remember_all(ana, *(f"Number {n}." for n in range(31)))
    for n, spoke in enumerate(spokes):
        link(ana, hub, spoke, "about", n / 100)
    strongest = spokes[::-1]
    assert neighbors(ana, hub) == strongest[:20]
    assert neighbors(ana, hub, "fanout => 3") == strongest[:3]
    assert neighbors(ana, hub, "fanout => 100") == strongest
    # A memory that is no longer true takes nobody's place.
    ana.execute("update memory set valid_to = '2000-01-01' where id = any (%s)", (strongest[:2],))
    assert neighbors(ana, hub, "fanout => 3") == strongest[2:5]
    assert neighbors(ana, hub, "fanout => 3, as_of => null") == strongest[:3]
    assert neighbors(ana, hub, "fanout => 3, as_of => '1999-01-01'") == strongest[:3]


def test_what_was_superseded_is_seen_at_its_time_only(ana: psycopg.Connection) -> None:
    a, b, c = remember_all(ana, "Ana.", "Bern.", "Bears.")
    link(ana, a, b)
    link(ana, b, c)
    new = one(ana, "select memory_update(%s, 'Basel.', valid_from => '2024-01-01')", b)
    assert neighbors(ana, a, "2") == [new, c]
    assert neighbors(ana, a, "2, as_of => '2023-01-01'") == [b, c]


def test_a_dense_web_stays_within_its_limits(ana: psycopg.Connection) -> None:
    ids = remember_all(ana, "Start.")
    ana.execute(
        "insert into memory (content, kind) select 'Node ' || n, 'fact' from generate_series(1, 150) n"
    )
    ana.execute(
        """insert into memory_link (source_id, target_id, relation, weight)
           select s.id, t.id, 'about', random() from memory s, memory t where s.id <> t.id"""
    )
    ana.execute("set statement_timeout = '5s'")  # 30 ** 5 paths would take an hour
    assert len(neighbors(ana, ids[0], "5, fanout => 30, k => 1000")) > 30


@pytest.mark.parametrize(
    ("call", "sqlstate"),
    [
        ("memory_link_insert({a}, {a}, 'about')", "22023"),
        ("memory_link_insert({a}, {b}, null)", "22023"),
        ("memory_link_insert({a}, {b}, '')", "22023"),
        ("memory_link_insert({a}, {b}, 'Lives in')", "22023"),
        ("memory_link_insert({a}, {b}, 'about', 1.5)", "22023"),
        ("memory_link_insert({a}, {b}, 'about', 'NaN')", "22023"),
        ("memory_link_insert(null, {b}, 'about')", "22004"),
        ("memory_link_insert({a}, null, 'about')", "22004"),
        ("memory_link_insert({a}, 0, 'about')", "42704"),
        ("memory_link_delete({a}, 0)", "42704"),
        ("memory_link_delete(null, {a})", "22004"),
        ("memory_neighbors(null)", "22004"),
        ("memory_neighbors(0)", "42704"),
        ("memory_neighbors({a}, 0)", "22023"),
        ("memory_neighbors({a}, 6)", "22023"),
        ("memory_neighbors({a}, null)", "22004"),
        ("memory_neighbors({a}, k => 0)", "22023"),
        ("memory_neighbors({a}, k => 1001)", "22023"),
        ("memory_neighbors({a}, fanout => 0)", "22023"),
        ("memory_neighbors({a}, direction => 'up')", "22023"),
        ("memory_neighbors({a}, direction => null)", "22023"),
    ],
)
@pytest.mark.shares
def test_bad_links_are_refused(ana: psycopg.Connection, call: str, sqlstate: str) -> None:
    a, b = remember_all(ana, "Ana.", "Bern.")
    with fails(sqlstate):
        ana.execute(f"select {call.format(a=a, b=b)}")
    assert one(ana, "select count(*) from memory_link") == 0


def test_nobody_links_to_anothers_memories(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    secret, safe = remember_all(ana, "The safe opens with 4711.", "The safe is in the cellar.")
    link(ana, secret, safe)
    (mine,) = remember_all(bob, "I like safes.")
    for call in (
        f"memory_link_insert({mine}, {secret}, 'about')",
        f"memory_link_insert({secret}, {mine}, 'about')",
        f"memory_link_insert({secret}, {safe}, 'about', 0.1)",
        f"memory_link_delete({secret}, {safe})",
        f"memory_link_delete({mine}, {secret})",
        f"memory_neighbors({secret})",
    ):
        with fails("42704", hint="memory_list"):
            bob.execute(f"select {call}")
    for statement in (
        f"insert into memory_link (source_id, target_id, relation) values ({mine}, {secret}, 'about')",
        "insert into memory_link (tenant, source_id, target_id, relation)"
        f" values ('{ana.info.user}', {secret}, {safe}, 'near')",
    ):
        with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.ForeignKeyViolation)):
            bob.execute(statement)
    assert bob.execute("select * from memory_link").fetchall() == []
    assert ana.execute("select weight from memory_link").fetchall() == [(1,)]


@pytest.mark.parametrize("role", ["reader", "admin"])
def test_who_is_no_user_has_no_links(connect: Connect, role: str) -> None:
    for call in ("memory_link_insert(1, 2, 'about')", "memory_link_delete(1, 2)", "memory_neighbors(1)"):
        with fails("42501", hint=None):
            connect(role).execute(f"select {call}")
