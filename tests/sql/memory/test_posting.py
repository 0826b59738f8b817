"""Remembering and recalling."""

import json
from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER, Connect, fails, one
from support.deletion import delete
from support.memories import remember_all

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


@pytest.mark.parametrize(
    "change",
    [
        "update memory set content = content || ' again' where id = any (%s)",
        "select _mindful.memory_delete(%s)",
    ],
    ids=["update", "delete"],
)
def test_a_change_of_many_reads_no_more_row_by_row(
    db: psycopg.Connection, ana: psycopg.Connection, change: str
) -> None:
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
    counted = []
    for wanted in ([], ids[::16]):
        ana.execute(change.encode(), (wanted,))
        ana.execute("select pg_stat_force_next_flush()")
        ana.execute("select")  # whose end is the flush
        row = db.execute(blocks).fetchone()
        assert row is not None
        counted.append(row[0])
    assert 1000 < counted[1] - counted[0] < 40 * 500


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


@pytest.fixture
def crowd(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    """A tenant with 30,000 memories beside ana's three; vectors scripted, so that it takes a second."""
    db.execute("select model_default_set('scripted-embedder')")
    db.execute(
        """insert into memory (tenant, content)
           select 'crowd', 'note ' || n || ' on subject ' || n % 100 from generate_series(1, 30000) n"""
    )
    remember_all(ana, "The red fox sleeps.", "A blue bird sings.", "The green frog jumps.")
    db.execute("analyze memory, memory_term, memory_embedding_scripted_embedder")


def test_a_small_tenant_finds_all_it_has_among_many_others(crowd: None, ana: psycopg.Connection) -> None:
    assert len(recall(ana, "something else entirely", 5)) == 3


def test_a_tenants_index_is_used_and_finds_as_near_ones(
    crowd: None, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    db.execute("set mindful.tenant = 'crowd'")
    query = """select array_agg(similarity order by similarity desc)
        from _mindful.recall_dense(llm_embed('note 7', 'scripted-embedder'), 'scripted-embedder', 10, null)"""
    exact = (db.execute(query).fetchone() or ([],))[0]
    name = (admin.execute("select memory_index_create('crowd', 'scripted-embedder')").fetchone() or ("",))[0]
    plan = db.execute(
        """explain (costs off) select id from memory_embedding_scripted_embedder where tenant = 'crowd'
           order by embedding <=> (select llm_embed('note 7', 'scripted-embedder')) limit 10"""
    ).fetchall()
    assert name in str(plan)
    assert (db.execute(query).fetchone() or ([],))[0] == pytest.approx(exact, abs=0.05)
    for argument, sqlstate in (("null", "22004"), ("'crowd', 'nobody'", "42704")):
        with fails(sqlstate):
            admin.execute(f"select memory_index_create({argument})")


def test_an_index_of_more_than_250000_memories_is_searched_more_broadly(
    crowd: None, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    def pages() -> int:
        query = """explain (analyze, buffers, timing off, format json) select id
            from _mindful.recall_dense(llm_embed('note 7', 'scripted-embedder'), 'scripted-embedder', 10, null)"""
        db.execute(query)  # reads the catalog
        plan = one(db, query)[0]["Plan"]
        return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

    admin.execute("select memory_index_create('crowd', 'scripted-embedder')")
    db.execute("set mindful.tenant = 'crowd'")
    few = pages()
    count = "insert into memory_count (tenant, memories, lexemes) values ('crowd', %s, 0)"
    db.execute(count, (220_000,))
    assert pages() < 1.1 * few
    db.execute(count, (1,))
    assert (broad := pages()) > 1.3 * few
    db.execute(count, (1_750_000,))
    assert pages() > 1.3 * broad


SHORT, LONG = (str(UUID(int=number)) for number in (1, 2))


@pytest.fixture
def various(crowd: None, db: psycopg.Connection) -> Callable[[str], tuple[set[int], int]]:
    """Half of the memories are facts of a common source and a long session, three are reflections of rare ones.

    Value: a function that returns the memories found under a filter, and the pages read.
    """
    db.execute("set session_replication_role = replica")
    db.execute(
        "insert into session (tenant, session_id) select 'crowd', unnest(%s::uuid[])", ([SHORT, LONG],)
    )
    db.execute(
        """update memory m set kind = n.kind, source = n.source, source_key = m.id, session_id = n.session_id::uuid,
               turn = case when n.session_id is not null then m.id end
           from (values (0, 'reflection', 'rare', %s), (1, 'fact', 'common', %s), (2, 'summary', 'other', null))
               n (number, kind, source, session_id)
           where m.tenant = 'crowd'
               and n.number = case when m.id %% 10000 = 0 then 0 when m.id %% 2 = 0 then 1 else 2 end""",
        (SHORT, LONG),
    )
    db.execute("reset session_replication_role")
    db.execute("set mindful.tenant = 'crowd'")

    def found(given: str) -> tuple[set[int], int]:
        query = f"""select id from _mindful.recall_dense(llm_embed('note 7', 'scripted-embedder'),
            'scripted-embedder', 10, _mindful.recall_filter({given}))"""
        ids = {id_ for (id_,) in db.execute(query)}  # reads the catalog too
        plan = one(db, "explain (analyze, buffers, timing off, format json) " + query)[0]["Plan"]
        return ids, int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])

    return found


@pytest.mark.parametrize(
    ("given", "number", "reads_few"),
    [
        ("array['fact'], null, null, null, null", 10, True),
        ("array['reflection'], null, null, null, null", 3, False),
        ("array['document'], null, null, null, null", 0, False),
        ("null, null, null, null, null, 'common'", 10, True),
        ("null, null, null, null, null, 'rare'", 3, True),
        (f"null, null, '{LONG}', null, null", 10, True),
        (f"null, null, '{SHORT}', null, null", 3, True),
    ],
)
def test_a_filter_of_a_large_tenant_is_looked_up_in_the_indexs_order(
    various: Callable[[str], tuple[set[int], int]],
    admin: psycopg.Connection,
    given: str,
    number: int,
    reads_few: bool,
) -> None:
    exact, _ = various(given)
    assert len(exact) == number
    admin.execute("select memory_index_create('crowd', 'scripted-embedder')")
    found, pages = various(given)
    assert (len(found), pages < 10_000) == (number, reads_few)
    assert number == 10 or found == exact


def test_without_an_index_memories_are_compared_once(various: Callable[[str], tuple[set[int], int]]) -> None:
    kinds = "array['{}'], null, null, null, null"
    (_, common), (_, rare) = (various(kinds.format(kind)) for kind in ("fact", "reflection"))
    assert rare < 1.2 * common


def test_only_an_administrator_makes_an_index(ana: psycopg.Connection) -> None:
    with fails("42501", hint=None):
        ana.execute("select memory_index_create('ana')")
