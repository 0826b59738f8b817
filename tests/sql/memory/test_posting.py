"""Remembering and recalling."""

import json

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER, Connect, fails
from support.deletion import delete
from support.memories import remember_all
from support.query import one

FACTS = [
    "Rex is a beagle who sleeps in the kitchen.",
    "The server room is on the third floor.",
    "Marta moved to Toronto in 2019.",
    "Peanuts make my throat swell.",
    "The quarterly report is due on Friday.",
]


def recall(connection: psycopg.Connection, query: str, k: int = 3) -> list[str]:
    return [row[0] for row in connection.execute("select content from memory_recall(%s, %s)", (query, k))]


@pytest.mark.smoke
def test_recall_finds_by_meaning_and_by_words(ana: psycopg.Connection, connect: Connect) -> None:
    remember_all(ana, *FACTS)
    other = connect("ana")  # what one connection remembers, another recalls
    assert recall(other, "Which food allergies are there?", 1) == ["Peanuts make my throat swell."]
    assert recall(other, "Toronto", 1) == ["Marta moved to Toronto in 2019."]
    assert recall(other, "Where does the puppy lie down?", 1) == [
        "Rex is a beagle who sleeps in the kitchen."
    ]


@pytest.mark.smoke
def test_ids_come_in_the_order_of_the_texts(ana: psycopg.Connection) -> None:
    ids = remember_all(ana, *FACTS)
    assert ids == sorted(ids)
    assert [row[0] for row in ana.execute("select content from memory order by id")] == FACTS


def test_a_changed_text_is_found_by_its_new_words_only(ana: psycopg.Connection) -> None:
    (memory_id,) = remember_all(ana, "The meeting is in Lisbon.")
    ana.execute("update memory set content = 'The concert is in Oslo.' where id = %s", (memory_id,))
    row = ana.execute("select similarity, bm25 from memory_recall('concert Oslo', 1)").fetchone()
    assert row is not None
    assert row[0] > 0.5 < row[1]
    assert ana.execute("select bm25 from memory_recall('meeting Lisbon', 1)").fetchone() == (None,)
    assert ana.execute(
        'select count(*) from memory m join "memory_embedding_all_minilm_l6_v2" e using (tenant, id, content_hash)'
    ).fetchone() == (1,)


def test_a_deleted_memory_leaves_nothing(ana: psycopg.Connection) -> None:
    remember_all(ana, *FACTS)
    delete(ana, "memory")
    for relation in ("memory", "memory_term", "memory_embedding_all_minilm_l6_v2"):
        assert ana.execute(f"select count(*) from {relation}").fetchone() == (0,)
    assert ana.execute("select sum(memories), sum(lexemes) from memory_count").fetchone() == (0, 0)
    assert recall(ana, "Toronto") == []


def test_counts_agree_with_the_rows(ana: psycopg.Connection, connect: Connect) -> None:
    remember_all(ana, *FACTS)
    remember_all(connect("ana"), "One more from another connection.")
    ana.execute("update memory set content = content || ' And more words here.' where id % 2 = 0")
    delete(ana, "memory", "mod(id, 3) = 0")
    assert (
        ana.execute("select sum(memories), sum(lexemes) from memory_count").fetchone()
        == ana.execute("select count(*), sum(_mindful.length(content)) from memory").fetchone()
    )
    assert (
        ana.execute("select lexeme, id, frequency, length from memory_term order by 1, 2").fetchall()
        == ana.execute(
            "select t.lexeme, m.id, t.frequency, t.length from memory m, _mindful.terms(m.content) t order by 1, 2"
        ).fetchall()
    )


def test_stop_words_alone_are_recalled_by_meaning(ana: psycopg.Connection) -> None:
    remember_all(ana, *FACTS)
    assert len(recall(ana, "who is that", 2)) == 2


@pytest.mark.parametrize(
    ("call", "sqlstate"),
    [
        ("memory_insert(null)", "22004"),
        ("memory_insert('')", "22023"),
        ("memory_insert(E'\\t\\n ')", "22023"),
        ("memory_insert(repeat('word ', 2000000))", "54000"),
        ("memory_insert('x', kind => 'message')", "22023"),
        ("memory_insert('x', kind => null)", "22023"),
        ("memory_insert('x', metadata => '[1]')", "22023"),
        ("memory_insert_many(null)", "22004"),
        ("memory_insert_many('{}')", "22023"),
        ("memory_insert_many('[1]')", "22023"),
        ('memory_insert_many(\'[{"content": "x"}, {"content": ""}]\')', "22023"),
        ('memory_insert_many(\'[{"content": "x", "contents": "y"}]\')', "22023"),
        ("memory_insert_many('[{}]')", "22004"),
        ("memory_recall(null)", "22004"),
        ("memory_recall('')", "22023"),
        ("memory_recall('x', 0)", "22023"),
        ("memory_recall('x', -1)", "22023"),
        ("memory_recall('x', 1000000)", "22023"),
        ("memory_recall('x', null)", "22004"),
        ("memory_recall('x', kinds => '{facts}')", "22023"),
        ("memory_recall('x', kinds => '{fact,null}')", "22023"),
        ("memory_recall('x', metadata => '[1]')", "22023"),
        ("memory_export('{facts}')", "22023"),
    ],
)
@pytest.mark.shares
def test_bad_arguments_are_refused_and_nothing_is_written(
    ana: psycopg.Connection, call: str, sqlstate: str
) -> None:
    with fails(sqlstate):
        ana.execute(f"select {call}")
    assert ana.execute("select count(*) from memory").fetchone() == (0,)


def test_the_error_names_the_element(ana: psycopg.Connection) -> None:
    with fails("22023") as caught:
        ana.execute("select memory_insert_many(%s)", (json.dumps([{"content": "fine"}, {"content": " "}]),))
    assert "element 2" in str(caught.value)


def test_invalid_utf8_never_arrives(ana: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
        ana.execute(r"select memory_insert(convert_from('\xff', 'UTF8'))")


def test_memories_without_an_embedder_are_found_by_their_words(
    db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    db.execute("update model set is_default = false where kind = 'embedder'")
    remember_all(ana, *FACTS)
    rows = ana.execute("select content, similarity from memory_recall('Toronto', 2)").fetchall()
    assert rows == [("Marta moved to Toronto in 2019.", None)]


def test_nothing_remembered_is_nothing_recalled(ana: psycopg.Connection) -> None:
    assert recall(ana, "anything") == []


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_load_into_an_empty_database_reads_no_more_row_by_row(
    db: psycopg.Connection, ana: psycopg.Connection, mode: str
) -> None:
    """Statements that were planned for an empty table looked at all of a tenant's rows for each new one."""
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    ana.execute("select setting_set('embedding_mode', %s)", (Jsonb(mode),))
    read = """select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) from pg_stat_xact_user_tables
        where relid = 'memory'::regclass"""
    with ana.transaction():
        for start in range(0, 5000, 50):
            remember_all(ana, *(f"note {number}" for number in range(start, start + 50)))
        row = ana.execute(read).fetchone()
    assert row is not None
    assert row[0] < 10 * 5000


CHANGES = {
    "update": "update memory set content = content || ' again' where id = any (%s)",
    "delete": "select _mindful.memory_delete(%s)",
}


def test_a_change_of_many_reads_no_more_row_by_row(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    """Plans that were kept from one row read all postings of the tenant for each of many."""
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    blocks = """select sum(idx_blks_hit + idx_blks_read) from pg_statio_user_indexes
        where relname in ('memory', 'memory_term')"""
    (first,) = remember_all(ana, "note")
    ana.execute("update memory set content = 'changed' where id = %s", (first,))
    delete(ana, "memory", "id = %s", first)
    ids = [
        made for _ in range(16) for made in remember_all(ana, *(f"note {number}" for number in range(500)))
    ]
    for at, (name, change) in enumerate(CHANGES.items()):
        counted = []
        for wanted in ([], ids[at::16]):
            ana.execute(change.encode(), (wanted,))
            ana.execute("select pg_stat_force_next_flush()")
            ana.execute("select")  # whose end is the flush
            row = db.execute(blocks).fetchone()
            assert row is not None
            counted.append(row[0])
        assert 1000 < counted[1] - counted[0] < 40 * 500, (name, counted)


def test_an_index_beside_the_primary_key_serves_no_other_query(db: psycopg.Connection) -> None:
    """Without statistics the planner cannot tell it from the primary key where a table is small."""
    indexes = """select i.indexrelid::regclass::text
        from pg_index i
        join pg_class c on c.oid = i.indrelid and c.relkind = 'r' and c.relnamespace = 'mindful'::regnamespace
        join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0] and a.attname = 'tenant'
        where not i.indisprimary and i.indpred is null"""
    assert db.execute(indexes).fetchall() == []
    db.execute("create index on memory (tenant, created_at)")
    assert db.execute(indexes).fetchall() == [("memory_tenant_created_at_idx",)]


def test_writers_do_not_wait_for_each_other(ana: psycopg.Connection, connect: Connect) -> None:
    with ana.transaction():
        remember_all(ana, *FACTS)
        for _ in range(3):
            other = connect("ana")
            other.execute("set lock_timeout = '5s'")
            remember_all(other, "Written while the other transaction is open.")
    with ana.transaction():
        ana.execute("set transaction isolation level repeatable read")
        ana.execute("select count(*) from memory")
        remember_all(other, "Written after the other's snapshot.")
        remember_all(ana, "Written under an older snapshot.")
    assert ana.execute("select sum(memories) from memory_count").fetchone() == (len(FACTS) + 5,)


def test_only_an_administrator_makes_an_index(ana: psycopg.Connection) -> None:
    with fails("42501", hint=None):
        ana.execute("select memory_index_create('ana')")


COUNTS = "select count(*), sum(memories), sum(lexemes), sum(bytes) from memory_count"
COUNTED = """select count(*), sum(_mindful.length(content)), sum(_mindful.memory_bytes(content, metadata))
    from memory"""


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_writers_above_read_committed_leave_few_rows_of_counts(
    db: psycopg.Connection, ana: psycopg.Connection, connect: Connect, isolation: str
) -> None:
    """Recall reads all rows of a tenant's counts."""
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    other = connect("ana")
    other.execute(f"set default_transaction_isolation = '{isolation}'".encode())
    for number in range(40):
        remember_all(other, f"note {number}")
    with other.transaction():
        for number in range(40):
            remember_all(other, f"note {number} of one transaction")
    if isolation == "serializable":  # no row is read there, which could make others fail
        assert one(ana, COUNTS)[0] == 80
        remember_all(ana, "A writer at read committed.")
    assert one(ana, COUNTS)[0] <= 18
    assert one(ana, COUNTS)[1:] == one(ana, COUNTED)


def test_counts_are_merged_without_waiting(
    db: psycopg.Connection, ana: psycopg.Connection, connect: Connect
) -> None:
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    other, third, late = connect("ana"), connect("ana"), connect("ana")
    with ana.transaction():
        ana.execute("set transaction isolation level serializable")
        for number in range(30):
            remember_all(ana, f"note {number}")
    for writer in (other, third, late):
        writer.execute("set lock_timeout = '5s'")
    with late.transaction():
        late.execute("set transaction isolation level repeatable read")
        late.execute("select count(*) from memory")
        with ana.transaction(force_rollback=True), other.transaction():
            remember_all(ana, "It has merged all rows.")
            remember_all(other, "It finds none that is free.")
            remember_all(third, "Nor does this one.")
        remember_all(third, "It merges them after the snapshot of the other.")
        remember_all(late, "Its snapshot has rows that are gone.")
    assert one(ana, COUNTS)[0] <= 18
    assert one(ana, COUNTS)[1:] == one(ana, COUNTED)
