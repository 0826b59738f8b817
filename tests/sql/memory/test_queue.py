"""The queue of memories to embed, and whoever works on it."""

from __future__ import annotations

import psycopg
import pytest
from support import Connect, fails, one
from support.deletion import delete
from support.jobs import EMBEDDINGS, embedded, queued, run
from support.memories import remember_all

pytestmark = pytest.mark.usefixtures("scripted")


@pytest.mark.smoke
def test_a_worker_embeds_what_waits(queueing: None, ana: psycopg.Connection) -> None:
    remember_all(ana, "Rex is a beagle.", "Tom is a cat.")
    ana.execute("update memory set content = 'Tom is an old cat.' where content = 'Tom is a cat.'")
    assert run(ana) == (2, 1, 0)
    assert embedded(ana) == ["Rex is a beagle.", "Tom is an old cat."]
    assert queued(ana) == 0
    assert run(ana) == (0, 0, 0)
    ana.execute("update memory set importance = 1")
    assert queued(ana) == 0


def test_the_mode_is_each_users_own(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    ana.execute("""select setting_set('embedding_mode', '"async"')""")
    for connection in (ana, bob):
        remember_all(connection, "Rex is a beagle.")
    assert (queued(ana), embedded(ana)) == (1, [])
    assert (queued(bob), embedded(bob)) == (0, ["Rex is a beagle."])
    with fails("22023", hint="sync, async"):
        ana.execute("""select setting_set('embedding_mode', '"never"')""")


def test_workers_are_told_once_a_statement(
    queueing: None, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    bob.execute("listen mindful_job")
    remember_all(ana, *(f"note {number}" for number in range(100)))
    assert [notice.payload for notice in bob.notifies(timeout=60, stop_after=1)] == [""]
    assert list(bob.notifies(timeout=0.2)) == []


@pytest.mark.smoke
def test_only_as_many_as_asked_for(queueing: None, ana: psycopg.Connection) -> None:
    remember_all(ana, *(f"note {number}" for number in range(150)))
    assert run(ana, "max_jobs => 100") == (100, 0, 0)
    assert run(ana, "max_seconds => 0") == (50, 0, 0)
    for arguments, sqlstate in (
        ("0", "22023"),
        ("null", "22004"),
        ("1, null", "22004"),
        ("1, -1", "22023"),
        ("1, 'NaN'", "22023"),
    ):
        with fails(sqlstate):
            run(ana, arguments)


@pytest.fixture
def picky(admin: psycopg.Connection) -> None:
    """The default embedder refuses some texts, and jobs are tried again at once, twice."""
    admin.execute(
        "select model_register('picky', 'embedder', 'scripted', '', '{\"dims\": 64, \"refused\": \"poison\"}')"
    )
    admin.execute("select model_default_set('picky', force => true)")
    admin.execute("""select setting_set('embedding_mode', '"async"', 'global')""")
    admin.execute(
        "select setting_set('embedding_retry_s', '0', 'global'), setting_set('embedding_attempts', '3', 'global')"
    )


@pytest.mark.smoke
def test_a_bad_text_fails_alone_and_becomes_a_dead_letter(
    picky: None, ana: psycopg.Connection, admin: psycopg.Connection
) -> None:
    remember_all(ana, "good one", "poison", "good two")
    assert run(ana, "max_seconds => 0") == (2, 0, 1)
    assert one(ana, "select count(*) from memory_embedding_picky") == 2
    assert ana.execute("select attempts, last_error from embedding_job").fetchall() == [
        (1, "the script refuses a text")
    ]
    assert run(ana) == (0, 0, 2)
    assert queued(ana) == 0
    dead = ana.execute(
        "select content, attempts, error from embedding_job_failed join memory using (id)"
    ).fetchall()
    assert dead == [("poison", 3, "the script refuses a text")]
    assert one(ana, "select embedding_enqueue()") == 0  # it would come back for ever
    assert one(ana, "select embedding_retry('scripted-embedder')") == 0
    with fails("42704", hint="mindful.model"):
        ana.execute("select embedding_retry('nomodel')")
    assert one(ana, "select embedding_retry()") == 1
    assert ana.execute("select attempts, last_error from embedding_job").fetchall() == [(0, None)]
    assert one(ana, "select count(*) from embedding_job_failed") == 0
    ana.execute("update memory set content = 'remedy' where content = 'poison'")
    assert run(ana) == (1, 1, 0)


def test_the_dead_letter_of_a_text_that_was_changed_is_swept_away(
    picky: None, ana: psycopg.Connection
) -> None:
    remember_all(ana, "poison")
    run(ana)
    ana.execute("update memory set content = 'remedy'")
    ana.execute("select embedding_enqueue()")
    assert one(ana, "select count(*) from embedding_job_failed") == 0


@pytest.mark.smoke
def test_a_failure_is_tried_again_later_and_later(
    picky: None, admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    admin.execute("select setting_set('embedding_retry_s', '100', 'global')")
    remember_all(ana, "poison")
    waits = []
    for _ in range(2):
        run(ana)
        wait = one(ana, "select extract(epoch from run_after - clock_timestamp()) from embedding_job")
        waits.append(float(wait))
        assert run(ana) == (0, 0, 0)
        ana.execute("update embedding_job set run_after = now()")
    assert waits == pytest.approx([100, 200], abs=10)


@pytest.mark.smoke
def test_a_model_that_cannot_be_loaded_fails_its_jobs_and_no_others(
    queueing: None, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    remember_all(ana, "Rex is a beagle.")
    db.execute("update model set source = '/nowhere' where name = 'all-minilm-l6-v2'")
    assert one(ana, "select embedding_enqueue('all-minilm-l6-v2')") == 1
    assert run(ana, "max_seconds => 0") == (1, 0, 1)
    assert "/nowhere" in str(one(ana, "select last_error from embedding_job"))


def test_an_administrator_works_for_all_and_reads_nothing(
    queueing: None, ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    for connection in (ana, bob):
        remember_all(connection, "Rex is a beagle.")
    assert run(bob) == (1, 0, 0)
    assert (queued(ana), queued(bob)) == (1, 0)
    assert run(admin) == (1, 0, 0)
    assert embedded(ana) == ["Rex is a beagle."]
    for statement in (
        "select * from embedding_job",
        "select * from embedding_job_failed",
        "select * from _mindful.job_take(10)",
        f"select * from {EMBEDDINGS}",
    ):
        with fails("42501", hint=None):
            admin.execute(statement.encode())


def test_a_million_of_one_tenant_keeps_nobody_waiting(
    queueing: None, ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    remember_all(ana, *(f"note {number}" for number in range(500)))
    ana.execute(
        "update embedding_job set run_after = '0001-01-02 00:00+00', enqueued_at = '0001-01-02 00:00+00'"
    )
    remember_all(bob, "one", "two", "three")
    run(admin, "max_jobs => 64, max_seconds => 0")
    assert embedded(bob) == ["one", "two", "three"]
    assert 400 < queued(ana) < 500


def test_nobody_holds_up_the_others(
    queueing: None,
    connect: Connect,
    ana: psycopg.Connection,
    bob: psycopg.Connection,
    admin: psycopg.Connection,
) -> None:
    """Bob locks what he can of his own: his jobs, memories, an embedding in the making, a dead letter."""
    ids = remember_all(bob, "one", "two", "three", "four")
    remember_all(ana, "Rex is a beagle.")
    with bob.transaction():
        bob.execute("select from embedding_job where id = %s for update", (ids[0],))
        bob.execute("select from memory where id = %s for update", (ids[1],))
        bob.execute(
            f"insert into {EMBEDDINGS} (id, embedding, content_hash)"
            " select %s, array_fill(1, array[64])::vector, 'x'",
            (ids[2],),
        )
        admin.execute("set statement_timeout = '10s'")
        assert run(admin, "max_seconds => 0") == (2, 0, 1)
        assert embedded(ana) == ["Rex is a beagle."]
        assert one(admin, "select embedding_enqueue()") == 0
    assert queued(bob) == 3


def test_nobody_enqueues_for_others(
    queueing: None, ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    (memory_id,) = remember_all(ana, "The safe opens with 4711.")
    admin.execute(
        "select model_register('private', 'embedder', 'scripted', '', granted_to => array[%s])",
        (ana.info.user,),
    )
    (own,) = remember_all(bob, "Tom is a cat.")
    insert = "insert into embedding_job (tenant, id, model, content_hash) values (%s, %s, %s, 'x')"
    for tenant, target, model, sqlstate in (
        (ana.info.user, memory_id, "scripted-embedder", "42501"),
        (bob.info.user, memory_id, "scripted-embedder", "23503"),
        (bob.info.user, own, None, "42501"),
        (bob.info.user, own, "nobody", "42501"),
        (bob.info.user, own, "private", "42501"),
        (bob.info.user, own, "smollm2-135m-instruct", "42501"),
    ):
        with fails(sqlstate, hint=None):
            bob.execute(insert, (tenant, target, model))
    assert bob.execute("update embedding_job set run_after = '9999-12-30'").rowcount == 1
    assert delete(bob, "embedding_job") == 1
    assert (queued(ana), queued(bob)) == (1, 0)
    for function in (
        "_mindful.job_run_all(1, 1)",
        "_mindful.job_retry_all(null)",
        "_mindful.embedding_sweep_all(null)",
        "_mindful.embedding_missing('scripted-embedder')",
        "_mindful.embedding_count_all()",
        "embedding_replica_set()",
    ):
        with fails("42501", hint=None):
            bob.execute(f"select {function}".encode())
    # A made-up hash is of no text: the job is dropped.
    bob.execute(insert, (bob.info.user, own, "scripted-embedder"))
    assert run(bob) == (0, 1, 0)


def test_a_deleted_memory_leaves_no_job(picky: None, ana: psycopg.Connection) -> None:
    remember_all(ana, "poison")
    run(ana)
    remember_all(ana, "good one")
    delete(ana, "memory")
    for table in ("embedding_job", "embedding_job_failed"):
        assert one(ana, f"select count(*) from {table}") == 0


def test_an_attached_table_is_embedded_as_it_says(
    db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    db.execute(f'create schema shop authorization "{ana.info.user}"')
    ana.execute("create table shop.ticket (id int primary key, body text)")
    ana.execute("insert into shop.ticket values (1, 'no toner')")
    ana.execute("select memory_attach('shop.ticket', 'body', mode => 'async')")
    with ana.cursor().copy("copy shop.ticket from stdin") as copy:
        for number in range(2, 101):
            copy.write_row((number, f"ticket {number}"))
    remember_all(ana, "Rex is a beagle.")
    assert (queued(ana), embedded(ana)) == (100, ["Rex is a beagle."])
    assert run(ana) == (100, 0, 0)
    with fails("22023", hint="sync and async"):
        ana.execute("select memory_attach('shop.ticket', 'body', mode => 'never')")
    ana.execute("select memory_detach('shop.ticket')")
    ana.execute("""select setting_set('embedding_mode', '"async"')""")
    ana.execute("select memory_attach('shop.ticket', 'body')")
    assert queued(ana) == 0
    assert len(embedded(ana)) == 101
    db.execute("drop schema shop cascade")


def test_replicated_rows_are_enqueued_where_that_is_asked_for(
    admin: psycopg.Connection, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    """A subscription's worker has this session_replication_role, and fires triggers by row alone."""
    insert = b"insert into memory (tenant, content) values (%s, %s) returning id"
    db.execute("set session_replication_role = replica")
    db.execute(insert, (ana.info.user, "before"))
    assert queued(ana) == 0
    admin.execute("select embedding_replica_set()")
    db.execute(insert, (ana.info.user, "after"))
    db.execute("update memory set metadata = '{}'")
    assert queued(ana) == 1
    db.execute("update memory set content = 'changed' where content = 'after'")
    db.execute("set row_security = off")  # as the scripts of pg_dump
    db.execute(insert, (ana.info.user, "restored"))
    assert queued(ana) == 2
    assert run(admin) == (1, 1, 0)
    assert embedded(ana) == ["changed"]
    remember_all(ana, "Tom is a cat.")
    assert queued(ana) == 0
    admin.execute("select embedding_replica_set(false)")
    db.execute("reset row_security")
    db.execute(insert, (ana.info.user, "off again"))
    assert queued(ana) == 0
    with fails("22004"):
        admin.execute("select embedding_replica_set(null)")


def test_without_pg_cron_a_schedule_says_what_else_there_is(admin: psycopg.Connection) -> None:
    with fails("55000", hint="mindful worker"):
        admin.execute("select worker_schedule()")
