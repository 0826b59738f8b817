"""Recall of tenants among 30,000 memories of one, with an index of its own and without."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

import psycopg
import pytest
from support import fails, one
from support.cluster import Cluster
from support.memories import remember_all

pytestmark = pytest.mark.shares

SHORT, LONG = (str(UUID(int=number)) for number in (1, 2))


@pytest.fixture(scope="module")
def template(cluster: Cluster, template: str, roles: Mapping[str, str]) -> Iterator[str]:
    """Name of a template database where a tenant has 30,000 memories beside ana's three. Vectors are scripted.

    Half of the memories are facts of a common source and a long session, three are reflections of rare ones.
    """
    with cluster.database(template) as name:
        with cluster.connect(name) as db:
            db.execute("select model_default_set('scripted-embedder')")
            db.execute(
                """insert into memory (tenant, content)
                   select 'crowd', 'note ' || n || ' on subject ' || n % 100 from generate_series(1, 30000) n"""
            )
            with cluster.connect(name, roles["ana"]) as ana:
                remember_all(ana, "The red fox sleeps.", "A blue bird sings.", "The green frog jumps.")
            db.execute("analyze memory, memory_term, memory_embedding_scripted_embedder")
            vary(db)
        yield name


def vary(db: psycopg.Connection) -> None:
    """Give the crowd's memories kinds, sources and sessions."""
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


class Indexed(NamedTuple):
    """A connection to a database where the crowd has an index, and the index's name."""

    db: psycopg.Connection
    name: str


@pytest.fixture(scope="module")
def indexed_database(cluster: Cluster, template: str, roles: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names of another database than that of `unindexed`, and of its index."""
    with cluster.database(template) as name:
        with cluster.connect(name, roles["admin"]) as admin:
            index = one(admin, "select memory_index_create('crowd', 'scripted-embedder')")
        yield name, index


# A connection that ran a function five times may plan its queries anew, so each test has its own.


@pytest.fixture
def indexed(cluster: Cluster, indexed_database: tuple[str, str]) -> Iterator[Indexed]:
    """The crowd with an index."""
    name, index = indexed_database
    with cluster.connect(name) as db:
        db.execute("set mindful.tenant = 'crowd'")
        yield Indexed(db, index)


@pytest.fixture
def unindexed(cluster: Cluster, database: str) -> Iterator[psycopg.Connection]:
    """The crowd without an index."""
    with cluster.connect(database) as db:
        db.execute("set mindful.tenant = 'crowd'")
        yield db


def pages_read(db: psycopg.Connection, query: str) -> int:
    """Count the pages that a query reads when the catalog has been read."""
    db.execute(query.encode())
    plan = one(db, "explain (analyze, buffers, timing off, format json) " + query)[0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def nearest(given: str) -> str:
    """The query for the ten nearest memories under a filter."""
    return f"""select id from _mindful.recall_dense(llm_embed('note 7', 'scripted-embedder'),
        'scripted-embedder', 10, {given})"""


def filtered(db: psycopg.Connection, given: str) -> tuple[set[int], int]:
    """Return the memories found under a filter's arguments, and the pages read."""
    query = nearest(f"_mindful.recall_filter({given})")
    return {id_ for (id_,) in db.execute(query.encode())}, pages_read(db, query)


def test_a_small_tenant_finds_all_it_has_among_many_others(ana: psycopg.Connection) -> None:
    found = ana.execute("select content from memory_recall('something else entirely', 5)").fetchall()
    assert len(found) == 3


def test_a_tenants_index_is_used_and_finds_as_near_ones(
    unindexed: psycopg.Connection, indexed: Indexed, admin: psycopg.Connection
) -> None:
    query = """select array_agg(similarity order by similarity desc)
        from _mindful.recall_dense(llm_embed('note 7', 'scripted-embedder'), 'scripted-embedder', 10, null)"""
    exact = one(unindexed, query)
    assert len(exact) == 10
    plan = indexed.db.execute(
        """explain (costs off) select id from memory_embedding_scripted_embedder where tenant = 'crowd'
           order by embedding <=> (select llm_embed('note 7', 'scripted-embedder')) limit 10"""
    ).fetchall()
    assert indexed.name in str(plan)
    assert one(indexed.db, query) == pytest.approx(exact, abs=0.05)
    for argument, sqlstate in (("null", "22004"), ("'crowd', 'nobody'", "42704")):
        with fails(sqlstate):
            admin.execute(f"select memory_index_create({argument})")


def test_an_index_of_more_than_250000_memories_is_searched_more_broadly(indexed: Indexed) -> None:
    db = indexed.db
    few = pages_read(db, nearest("null"))
    count = "insert into memory_count (tenant, memories, lexemes) values ('crowd', %s, 0)"
    with db.transaction(force_rollback=True):
        db.execute(count, (220_000,))
        assert pages_read(db, nearest("null")) < 1.1 * few
        db.execute(count, (1,))
        assert (broad := pages_read(db, nearest("null"))) > 1.3 * few
        db.execute(count, (1_750_000,))
        assert pages_read(db, nearest("null")) > 1.3 * broad


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
    unindexed: psycopg.Connection, indexed: Indexed, given: str, number: int, reads_few: bool
) -> None:
    exact, _ = filtered(unindexed, given)
    assert len(exact) == number
    found, pages = filtered(indexed.db, given)
    assert (len(found), pages < 10_000) == (number, reads_few)
    assert number == 10 or found == exact


def test_without_an_index_memories_are_compared_once(unindexed: psycopg.Connection) -> None:
    kinds = "array['{}'], null, null, null, null"
    (_, common), (_, rare) = (filtered(unindexed, kinds.format(kind)) for kind in ("fact", "reflection"))
    assert rare < 1.2 * common
