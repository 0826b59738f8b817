"""Memories by id, page by page."""

from __future__ import annotations

import psycopg
import pytest
from support import fails, one
from support.memories import remember


def ids(connection: psycopg.Connection, arguments: str = "") -> list[int]:
    return [row[0] for row in connection.execute(f"select id from memory_list({arguments})")]


@pytest.fixture(autouse=True)
def quick(scripted: None) -> None:
    """The embedder takes no time."""


def test_a_memory_is_read_by_its_id(ana: psycopg.Connection) -> None:
    found = remember(ana, "Ana likes tea.", metadata={"topic": "food"}, importance=0.75, level="knowledge")
    assert one(ana, "select content, metadata, importance, level, kind from memory_get(%s)", found) == (
        "Ana likes tea.",
        {"topic": "food"},
        0.75,
        "knowledge",
        "fact",
    )


def test_another_tenants_memory_is_not_found(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    found = remember(ana, "Ana likes tea.")
    with fails("42704"):
        bob.execute("select memory_get(%s)", (found,))
    assert ids(bob) == []
    with fails("22004"):
        ana.execute("select memory_get(null)")


def test_pages_of_a_list_follow_one_another(ana: psycopg.Connection) -> None:
    written = [remember(ana, f"Fact {n}.") for n in range(7)]
    first = ids(ana, "max_count => 3")
    second = ids(ana, f"max_count => 3, before_id => {first[-1]}")
    third = ids(ana, f"max_count => 3, before_id => {second[-1]}")
    assert [len(page) for page in (first, second, third)] == [3, 3, 1]
    assert first + second + third == written[::-1]


def test_a_list_has_the_filters_of_recall(ana: psycopg.Connection) -> None:
    session = one(ana, "select session_start()")
    message = one(ana, "select message_insert(%s, 'user', 'I like tea.')", session)
    plain = remember(ana, "A fact.", metadata={"topic": "food", "n": 1})
    manual = remember(ana, "A manual.", kind="document")
    old = remember(ana, "An old fact.", valid_to="2001-01-01T00:00:00Z")
    for arguments, expected in {
        "": [manual, plain, message],
        "as_of => null": [old, manual, plain, message],
        "as_of => '2000-01-01'": [old, manual, plain, message],
        "kinds => '{document,message}'": [manual, message],
        'metadata => \'{"topic": "food"}\'': [plain],
        f"session_id => '{session}'": [message],
    }.items():
        assert ids(ana, arguments) == expected, arguments


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("max_count => 0", "22023"),
        ("max_count => 1001", "22023"),
        ("max_count => null", "22004"),
        ("kinds => '{gossip}'", "22023"),
        ("metadata => '7'", "22023"),
        ("as_of => '0044-03-15 BC'", "22008"),
    ],
)
def test_an_argument_outside_its_range_is_an_error(
    ana: psycopg.Connection, arguments: str, sqlstate: str
) -> None:
    with fails(sqlstate):
        ids(ana, arguments)


def rows_read(connection: psycopg.Connection, db: psycopg.Connection) -> int:
    connection.execute("select pg_stat_force_next_flush()")
    found: int = one(
        db,
        "select seq_tup_read + idx_tup_fetch from pg_stat_user_tables where relid = 'mindful.memory'::regclass",
    )
    return found


def test_a_page_reads_its_own_rows_only(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    """The primary key gives the order; a sort would read all memories of the tenant."""
    ana.execute(
        "select memory_insert_many(jsonb_agg(jsonb_build_object('content', 'Fact ' || n)))"
        " from generate_series(1, 2000) n"
    )
    before = rows_read(ana, db)
    assert len(ids(ana, "max_count => 10")) == 10
    assert rows_read(ana, db) - before < 100
