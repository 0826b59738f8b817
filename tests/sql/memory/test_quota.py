"""What a tenant may have, and that it can always make room."""

from __future__ import annotations

import psycopg
import pytest
from support import Connect, fails, one
from support.deletion import delete
from support.memories import remember_all


def set_quota(admin: psycopg.Connection, key: str, value: int) -> None:
    """Set a quota of all tenants."""
    admin.execute("select setting_set(%s, to_jsonb(%s), 'global')", (key, value))


def counted(db: psycopg.Connection) -> list[tuple[object, ...]]:
    """What the counts say, and what there is."""
    return db.execute(
        """select tenant, sum(c.memories), sum(c.bytes), max(m.memories), max(m.bytes)
           from memory_count c
           left join (
               select tenant, count(*) as memories, sum(octet_length(content) + octet_length(metadata::text)) as bytes
               from memory group by tenant
           ) m using (tenant)
           group by tenant"""
    ).fetchall()


def test_memories_are_counted_with_their_bytes(
    scripted: None, ana: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    for user in (ana, bob):
        ids = remember_all(user, "one", "two", "three", "four")
        user.execute("""update memory set metadata = '{"topic": "numbers"}' where id = %s""", (ids[0],))
        user.execute(
            "update memory set content = content || ' again', importance = 0.1 where id > %s", (ids[1],)
        )
        delete(user, "memory", "id = %s", ids[3])
    found = counted(db)
    assert len(found) == 2
    for _, memories, size, there, there_size in found:
        assert (memories, size) == (there, there_size)
        assert memories == 3


def test_no_more_memories_than_the_quota(
    scripted: None, admin: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    first, *_ = remember_all(ana, "one", "two", "three")
    set_quota(admin, "quota_memories", 3)
    with fails("53400", hint="quota_memories"):
        remember_all(ana, "four")
    with fails("53400", hint="quota_memories"):
        ana.execute("select message_insert(session_start(), 'user', 'Hello.')")
    remember_all(bob, "one", "two", "three")
    ana.execute("select memory_forget(array[%s])", (first,))
    remember_all(ana, "four")
    set_quota(admin, "quota_memories", 0)
    remember_all(ana, "five")


def test_no_more_bytes_than_the_quota(
    scripted: None, admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    ids = remember_all(ana, *("x" * 250_000 for _ in range(4)))
    set_quota(admin, "quota_mb", 1)
    with fails("53400", hint="quota_mb"):
        remember_all(ana, "y" * 100_000)
    with fails("53400", hint="quota_mb"):
        ana.execute(
            "update memory set metadata = jsonb_build_object('x', repeat('x', 100000)) where id = %s",
            (ids[0],),
        )
    set_quota(admin, "quota_mb", 0)
    remember_all(ana, "y" * 250_000)
    set_quota(admin, "quota_mb", 1)
    # There is too much by now; making less of it is not refused.
    ana.execute("update memory set content = 'short' where id = %s", (ids[0],))
    ana.execute("update memory set importance = 1")
    ana.execute("select * from memory_forget(array[%s])", (ids[1],))


def test_no_more_jobs_than_the_quota(
    queueing: None, admin: psycopg.Connection, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    remember_all(ana, "one")
    set_quota(admin, "quota_jobs", 3)
    remember_all(ana, "two", "three")
    with fails("53400", hint="quota_jobs"):
        remember_all(ana, "four")
    with fails("53400", hint="quota_jobs"):
        ana.execute(
            "insert into embedding_job (id, model, content_hash) select id, model, 'x' from embedding_job"
        )
    # The administrator's sweep is for all.
    db.execute("delete from embedding_job")
    set_quota(admin, "quota_jobs", 1)
    assert one(admin, "select embedding_enqueue()") == 3


@pytest.mark.parametrize(
    "key", ["quota_memories", "quota_mb", "quota_jobs", "state_tenant_mb", "state_total_mb"]
)
def test_only_administrators_set_quotas(key: str, connect: Connect, ana: psycopg.Connection) -> None:
    application = connect("application")
    application.execute("set mindful.tenant = 'customer-7'")
    for user in (ana, application):
        with fails("42501", hint=None):
            user.execute("select setting_set(%s, '1000000', 'global')", (key,))
        for scope in ("user", "session"):
            with fails("22023"):
                user.execute("select setting_set(%s, '1000000', %s)", (key, scope))
        with pytest.raises(psycopg.Error):
            user.execute("insert into setting (scope, key, value) values ('user', %s, '1000000')", (key,))
