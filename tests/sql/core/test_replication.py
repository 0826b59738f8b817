"""What is forgotten on a publisher is forgotten on its subscribers, whatever they have computed by themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psycopg
import pytest
from support import Cluster, one
from support.clock import Deadline
from support.forgetting import drawn, forget, talk
from support.memories import remember

LEFT = "select * from memory_forget_check(ids => %s)"


@pytest.fixture(autouse=True)
def replicating(db: psycopg.Connection) -> None:
    if one(db, "show wal_level") != "logical":
        pytest.skip("the cluster's wal_level is not logical, as make test has it")


def until(connection: psycopg.Connection, condition: str) -> None:
    deadline = Deadline()
    while not one(connection, f"select {condition}"):
        assert not deadline.passed(), condition
        time.sleep(0.05)


@contextmanager
def subscribed(cluster: Cluster, database: str, template: str, tables: str) -> Iterator[str]:
    """Name a database that receives the changes of another one's tables."""
    with (
        cluster.database(template) as name,
        cluster.connect(database) as publisher,
        cluster.connect(name) as subscriber,
    ):
        publisher.execute(f"create publication told for {tables}".encode())
        publisher.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        # Within one cluster the subscription cannot make the slot: it would wait for its own transaction.
        subscriber.execute(
            f"""create subscription told connection '{cluster.dsn(database)}' publication told
                with (create_slot = false, slot_name = {name}, copy_data = false)""".encode()
        )
        try:
            yield name
        finally:
            subscriber.execute("alter subscription told disable")
            subscriber.execute("alter subscription told set (slot_name = none)")
            subscriber.execute("drop subscription told")
            until(publisher, f"not active from pg_replication_slots where slot_name = '{name}'")
            publisher.execute("select pg_drop_replication_slot(%s)", (name,))


def test_every_tenants_table_can_be_replicated(db: psycopg.Connection) -> None:
    """An update or delete of a published table without a key fails on the publisher."""
    assert (
        db.execute(
            """select c.relname from pg_class c
               where c.relnamespace = 'mindful'::regnamespace and c.relkind = 'r' and c.relpersistence = 'p'
                   and c.relreplident = 'd'
                   and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)"""
        ).fetchall()
        == []
    )


def test_a_subscriber_forgets_what_it_computed(
    cluster: Cluster, database: str, template: str, roles: Mapping[str, str], ana: psycopg.Connection
) -> None:
    with (
        subscribed(cluster, database, template, "table mindful.memory, mindful.session") as name,
        cluster.connect(name) as subscriber,
        cluster.connect(name, roles["ana"]) as reader,
        cluster.connect(name, roles["admin"]) as admin,
    ):
        admin.execute("select embedding_replica_set()")
        said, reply = talk(ana, "My PIN is 9821.", "Noted.")
        fact = remember(ana, "Ana has a PIN.")
        kept = remember(ana, "I like tea.")
        until(subscriber, "count(*) = 4 from mindful.memory")
        reader.execute("select embedding_run()")
        later = remember(ana, "I like rye.")
        until(subscriber, "count(*) = 5 from mindful.memory")
        assert one(subscriber, "select count(*) from mindful.memory_embedding_all_minilm_l6_v2") == 4
        assert one(subscriber, "select count(*) from mindful.embedding_job") == 1
        reader.execute("insert into memory_access (id) select id from memory")
        reader.execute("select memory_link_insert(%s, %s, 'about')", (fact, kept))
        forget(ana, "session_id => (select session_id from memory where id = %s)", said)
        forget(ana, "ids => %s", [fact, later])
        until(subscriber, "count(*) = 1 from mindful.memory")
        until(subscriber, "count(*) = 0 from mindful.session")
        assert reader.execute(LEFT, ([said, reply, fact, later],)).fetchall() == []
        assert subscriber.execute("select id from mindful.memory_embedding_all_minilm_l6_v2").fetchall() == [
            (kept,)
        ]
        assert one(subscriber, "select count(*) from mindful.embedding_job") == 0


def test_a_subscriber_of_all_tables_has_the_publishers_rows(
    cluster: Cluster, database: str, template: str, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    with subscribed(cluster, database, template, "all tables") as name, cluster.connect(name) as subscriber:
        said = talk(ana, "My PIN is 9821.", "Noted.")
        drawn(ana, "Ana has a PIN.", said[0])
        remember(ana, "I like tea.")
        until(subscriber, "count(*) = 4 from mindful.memory_embedding_all_minilm_l6_v2")
        forget(ana, "ids => %s", said)
        until(subscriber, "count(*) = 1 from mindful.forget_receipt")
        tables = db.execute(
            "select relname from pg_class where relnamespace = 'mindful'::regnamespace and relkind = 'r'"
        ).fetchall()
        for (table,) in tables:
            rows = f"select to_jsonb(t) from mindful.{table} t order by 1".encode()
            assert subscriber.execute(rows).fetchall() == db.execute(rows).fetchall(), table
