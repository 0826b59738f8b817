"""The queue of memories to embed, and whoever works on it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import Connect, fails

EMBEDDINGS = "memory_embedding_scripted_embedder"
SLOT_WAITERS = """select count(*) from pg_locks
    where locktype = 'advisory' and classid = _slot_class()::oid and not granted"""


@pytest.fixture(autouse=True)
def scripted(admin: psycopg.Connection) -> None:
    """The default embedder takes no time."""
    admin.execute("select model_default_set('scripted-embedder', force => true)")


@pytest.fixture
def queueing(scripted: None, admin: psycopg.Connection) -> None:
    """Everybody's memories are embedded later."""
    admin.execute("""select setting_set('embedding_mode', '"async"', 'global')""")


def value(connection: psycopg.Connection, query: str, *arguments: object) -> object:
    row = connection.execute(query.encode(), arguments).fetchone()
    assert row is not None
    return row[0]


def remember(connection: psycopg.Connection, *contents: str) -> list[int]:
    rows = connection.execute(
        "select memory_insert_many(%s)", (Jsonb([{"content": content} for content in contents]),)
    )
    return [row[0] for row in rows]


def queued(connection: psycopg.Connection) -> int:
    return int(str(value(connection, "select count(*) from embedding_job")))


def embedded(connection: psycopg.Connection) -> list[str]:
    """The memories whose embedding is of their text."""
    rows = connection.execute(
        f"select content from memory join {EMBEDDINGS} using (tenant, id, content_hash) order by id"
    )
    return [content for (content,) in rows]


def run(connection: psycopg.Connection, arguments: str = "") -> tuple[int, int, int]:
    row = connection.execute(f"select * from job_run({arguments})").fetchone()
    assert row is not None
    return row


@pytest.fixture
def stuck(connect: Connect, admin: psycopg.Connection) -> Iterator[Callable[..., Stuck]]:
    """Makes workers that have taken a batch, and wait for the only slot to embed it."""
    admin.execute("select setting_set('model_slots', '1', 'global')")
    holder = connect()
    made: list[Stuck] = []

    def start(role: str | None = None) -> Stuck:
        if not made:
            holder.execute("select pg_advisory_lock(_slot_class(), 1)")
        made.append(Stuck(connect(role), holder))
        return made[-1]

    yield start
    with contextlib.suppress(psycopg.OperationalError):  # a test may have crashed the server
        holder.execute("select pg_advisory_unlock_all()")
    for worker in made:
        worker.thread.join()


class Stuck:
    """A worker amid a batch."""

    def __init__(self, connection: psycopg.Connection, holder: psycopg.Connection) -> None:
        self.pid, self._holder = connection.info.backend_pid, holder
        self.error: psycopg.Error | None = None
        self.outcome: tuple[int, int, int] | None = None
        before = int(str(value(holder, SLOT_WAITERS)))
        self.thread = threading.Thread(target=self._work, args=(connection,))
        self.thread.start()
        deadline = time.monotonic() + 20
        while value(holder, SLOT_WAITERS) == before and self.thread.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _work(self, connection: psycopg.Connection) -> None:
        try:
            self.outcome = run(connection)
        except psycopg.Error as error:
            self.error = error

    def release(self) -> tuple[int, int, int] | None:
        """Let it go on to its end."""
        self._holder.execute("select pg_advisory_unlock(_slot_class(), 1)")
        self.thread.join()
        return self.outcome


def test_a_writer_waits_for_no_model(
    queueing: None, stuck: Callable[..., Stuck], ana: psycopg.Connection
) -> None:
    """The only slot is taken."""
    stuck("ana")
    ana.execute("select setting_set('model_slot_wait_ms', '100')")
    remember(ana, "Rex is a beagle.", "Tom is a cat.")
    ana.execute("update memory set content = 'Tom is an old cat.' where content = 'Tom is a cat.'")
    assert queued(ana) == 3
    assert embedded(ana) == []
    assert value(ana, "select count(*) from _memory_lexical('beagle', 10, null)") == 1


def test_a_worker_embeds_what_waits(queueing: None, ana: psycopg.Connection) -> None:
    remember(ana, "Rex is a beagle.", "Tom is a cat.")
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
        remember(connection, "Rex is a beagle.")
    assert (queued(ana), embedded(ana)) == (1, [])
    assert (queued(bob), embedded(bob)) == (0, ["Rex is a beagle."])
    with fails("22023", hint="sync, async"):
        ana.execute("""select setting_set('embedding_mode', '"never"')""")


def test_workers_are_told_once_a_statement(
    queueing: None, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    bob.execute("listen mindful_job")
    remember(ana, *(f"note {number}" for number in range(100)))
    assert [notice.payload for notice in bob.notifies(timeout=5, stop_after=1)] == [""]
    assert list(bob.notifies(timeout=0.2)) == []


def test_only_as_many_as_asked_for(queueing: None, ana: psycopg.Connection) -> None:
    remember(ana, *(f"note {number}" for number in range(150)))
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


def test_a_stale_job_never_overwrites_a_newer_text(
    queueing: None, stuck: Callable[..., Stuck], ana: psycopg.Connection
) -> None:
    (memory_id,) = remember(ana, "The meeting is in Lisbon.")
    worker = stuck("ana")
    ana.execute("set lock_timeout = '1s'")  # nobody waits for a worker
    ana.execute("update memory set content = 'The concert is in Oslo.' where id = %s", (memory_id,))
    assert worker.release() == (0, 1, 0) or worker.outcome == (1, 1, 0)
    run(ana)
    assert embedded(ana) == ["The concert is in Oslo."]
    assert queued(ana) == 0


def test_a_text_that_is_being_changed_is_left_to_its_writer(
    queueing: None, stuck: Callable[..., Stuck], ana: psycopg.Connection, connect: Connect
) -> None:
    (memory_id, _) = remember(ana, "The meeting is in Lisbon.", "Tom is a cat.")
    worker = stuck("ana")
    other = connect("ana")
    with other.transaction():
        other.execute("update memory set content = 'The concert is in Oslo.' where id = %s", (memory_id,))
        assert worker.release() == (1, 0, 0)
        assert ana.execute("select attempts from embedding_job").fetchall() == [(0,)]
    assert embedded(ana) == ["Tom is a cat."]
    time.sleep(1.1)
    assert run(ana) == (1, 1, 0)
    assert embedded(ana) == ["The concert is in Oslo.", "Tom is a cat."]


@pytest.mark.parametrize("stop", ["pg_cancel_backend", "pg_terminate_backend"])
def test_the_jobs_of_a_stopped_worker_go_to_the_next(
    queueing: None,
    stuck: Callable[..., Stuck],
    ana: psycopg.Connection,
    db: psycopg.Connection,
    stop: str,
) -> None:
    contents = [f"note {number}" for number in range(100)]
    remember(ana, *contents)
    worker = stuck()
    assert value(db, "select count(*) from _job_take(1000)") == 100 - 64
    asked = time.perf_counter()
    db.execute(f"select {stop}(%s)", (worker.pid,))
    worker.thread.join()
    assert time.perf_counter() - asked < 0.2 * 5  # the machine is shared
    assert worker.error is not None
    assert worker.error.sqlstate in ("57014", "57P01")
    assert value(db, "select sum(attempts) from embedding_job") == 0
    worker.release()
    assert run(db) == (100, 0, 0)
    assert embedded(ana) == contents


@pytest.mark.skipif(
    not os.environ.get("MINDFUL_TEST_CRASH"), reason="crashes the server: MINDFUL_TEST_CRASH=1"
)
def test_a_server_that_crashes_amid_a_batch_loses_and_repeats_nothing(
    queueing: None, stuck: Callable[..., Stuck], connect: Connect
) -> None:
    ana = connect("ana")
    contents = [f"note {number}" for number in range(100)]
    remember(ana, *contents)
    run(ana, "10")
    before = ana.execute(f"select id, xmin::text from {EMBEDDINGS} order by id").fetchall()
    worker = stuck("ana")
    os.kill(worker.pid, signal.SIGKILL)
    worker.thread.join()
    deadline = time.monotonic() + 60
    while True:
        try:
            again = connect("ana")
            outcome = run(again)
            break
        except psycopg.OperationalError:  # the server ends all connections before it recovers
            assert time.monotonic() < deadline
            time.sleep(0.5)
    assert outcome == (90, 0, 0)
    assert embedded(again) == contents
    after = again.execute(f"select id, xmin::text from {EMBEDDINGS} order by id").fetchall()
    assert after[:10] == before


def test_two_workers_share_and_repeat_nothing(
    queueing: None, stuck: Callable[..., Stuck], ana: psycopg.Connection
) -> None:
    contents = [f"note {number}" for number in range(150)]
    remember(ana, *contents)
    first, second = stuck("ana"), stuck()
    first.release()
    second.thread.join()
    assert first.outcome is not None
    assert second.outcome is not None
    assert sum(first.outcome) + sum(second.outcome) == 150
    assert min(sum(first.outcome), sum(second.outcome)) >= 64
    assert embedded(ana) == contents


@pytest.fixture
def picky(admin: psycopg.Connection) -> None:
    """The default embedder refuses some texts, and jobs are tried again at once, twice."""
    admin.execute(
        "select model_register('picky', 'embedder', 'scripted', '', '{\"dims\": 64, \"refused\": \"poison\"}')"
    )
    admin.execute("select model_default_set('picky', force => true)")
    admin.execute("""select setting_set('embedding_mode', '"async"', 'global')""")
    admin.execute(
        "select setting_set('job_retry_s', '0', 'global'), setting_set('job_attempts', '3', 'global')"
    )


def test_a_bad_text_fails_alone_and_becomes_a_dead_letter(
    picky: None, ana: psycopg.Connection, admin: psycopg.Connection
) -> None:
    remember(ana, "good one", "poison", "good two")
    assert run(ana, "max_seconds => 0") == (2, 0, 1)
    assert value(ana, "select count(*) from memory_embedding_picky") == 2
    assert ana.execute("select attempts, last_error from embedding_job").fetchall() == [
        (1, "the script refuses a text")
    ]
    assert run(ana) == (0, 0, 2)
    assert queued(ana) == 0
    dead = ana.execute(
        "select content, attempts, error from embedding_job_failed join memory using (id)"
    ).fetchall()
    assert dead == [("poison", 3, "the script refuses a text")]
    assert value(ana, "select embedding_sweep()") == 0  # it would come back for ever
    assert value(ana, "select job_retry('scripted-embedder')") == 0
    assert value(ana, "select job_retry()") == 1
    assert ana.execute("select attempts, last_error from embedding_job").fetchall() == [(0, None)]
    assert value(ana, "select count(*) from embedding_job_failed") == 0
    ana.execute("update memory set content = 'remedy' where content = 'poison'")
    assert run(ana) == (1, 1, 0)


def test_the_dead_letter_of_a_text_that_was_changed_is_swept_away(
    picky: None, ana: psycopg.Connection
) -> None:
    remember(ana, "poison")
    run(ana)
    ana.execute("update memory set content = 'remedy'")
    ana.execute("select embedding_sweep()")
    assert value(ana, "select count(*) from embedding_job_failed") == 0


def test_a_failure_is_tried_again_later_and_later(
    picky: None, admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    admin.execute("select setting_set('job_retry_s', '100', 'global')")
    remember(ana, "poison")
    waits = []
    for _ in range(2):
        run(ana)
        wait = value(ana, "select extract(epoch from run_after - clock_timestamp()) from embedding_job")
        waits.append(float(str(wait)))
        assert run(ana) == (0, 0, 0)
        ana.execute("update embedding_job set run_after = now()")
    assert waits == pytest.approx([100, 200], abs=10)


def test_a_model_that_cannot_be_loaded_fails_its_jobs_and_no_others(
    queueing: None, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    remember(ana, "Rex is a beagle.")
    db.execute("update model set source = '/nowhere' where name = 'all-minilm-l6-v2'")
    assert value(ana, "select embedding_sweep('all-minilm-l6-v2')") == 1
    assert run(ana, "max_seconds => 0") == (1, 0, 1)
    assert "/nowhere" in str(value(ana, "select last_error from embedding_job"))


def test_an_administrator_works_for_all_and_reads_nothing(
    queueing: None, ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    for connection in (ana, bob):
        remember(connection, "Rex is a beagle.")
    assert run(bob) == (1, 0, 0)
    assert (queued(ana), queued(bob)) == (1, 0)
    assert run(admin) == (1, 0, 0)
    assert embedded(ana) == ["Rex is a beagle."]
    for statement in (
        "select * from embedding_job",
        "select * from embedding_job_failed",
        "select * from _job_take(10)",
        f"select * from {EMBEDDINGS}",
    ):
        with fails("42501", hint=None):
            admin.execute(statement.encode())


def test_a_million_of_one_tenant_keeps_nobody_waiting(
    queueing: None, ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    remember(ana, *(f"note {number}" for number in range(500)))
    ana.execute("update embedding_job set run_after = '-infinity', enqueued_at = '-infinity'")
    remember(bob, "one", "two", "three")
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
    ids = remember(bob, "one", "two", "three", "four")
    remember(ana, "Rex is a beagle.")
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
        assert value(admin, "select embedding_sweep()") == 0
    assert queued(bob) == 3


def test_nobody_enqueues_for_others(
    queueing: None, ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    (memory_id,) = remember(ana, "The safe opens with 4711.")
    admin.execute(
        "select model_register('private', 'embedder', 'scripted', '', granted_to => array[%s])",
        (ana.info.user,),
    )
    (own,) = remember(bob, "Tom is a cat.")
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
    assert bob.execute("update embedding_job set run_after = 'infinity'").rowcount == 1
    assert bob.execute("delete from embedding_job").rowcount == 1
    assert (queued(ana), queued(bob)) == (1, 0)
    for function in (
        "_job_run_all(1, 1)",
        "_job_retry_all(null)",
        "_embedding_sweep_all(null)",
        "_embedding_missing('scripted-embedder')",
        "_embedding_count_all()",
        "job_replica_set()",
    ):
        with fails("42501", hint=None):
            bob.execute(f"select {function}".encode())
    # A made-up hash is of no text: the job is dropped.
    bob.execute(insert, (bob.info.user, own, "scripted-embedder"))
    assert run(bob) == (0, 1, 0)


def test_a_deleted_memory_leaves_no_job(picky: None, ana: psycopg.Connection) -> None:
    remember(ana, "poison")
    run(ana)
    remember(ana, "good one")
    ana.execute("delete from memory")
    for table in ("embedding_job", "embedding_job_failed"):
        assert value(ana, f"select count(*) from {table}") == 0


def test_a_worker_commits_batch_by_batch(queueing: None, ana: psycopg.Connection, connect: Connect) -> None:
    remember(ana, *(f"note {number}" for number in range(150)))
    worker = connect("ana")
    worker.execute("call job_worker()")
    assert len(embedded(ana)) == 150
    assert value(ana, f"select count(distinct xmin::text) from {EMBEDDINGS}") == 3
    with fails("55000", hint="Call it outside"), worker.transaction():
        worker.execute("call job_worker()")
    with fails("22023"):
        worker.execute("call job_worker(-1)")
    with fails("22004"):
        worker.execute("call job_worker(null)")


def test_an_idle_worker_waits_for_jobs_and_can_be_stopped(
    queueing: None, ana: psycopg.Connection, db: psycopg.Connection, connect: Connect
) -> None:
    worker, errors = connect("ana"), []

    def work() -> None:
        try:
            worker.execute("call job_worker(60, idle => true)")
        except psycopg.Error as error:
            errors.append(error.sqlstate)

    thread = threading.Thread(target=work)
    thread.start()
    remember(ana, "Rex is a beagle.")
    deadline = time.monotonic() + 20
    while not embedded(ana):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    db.execute("select pg_cancel_backend(%s)", (worker.info.backend_pid,))
    thread.join(timeout=5)
    assert errors == ["57014"]
    assert embedded(ana) == ["Rex is a beagle."]
    started = time.monotonic()
    worker.execute("call job_worker(1.5, idle => true)")
    assert 1.4 < time.monotonic() - started < 5


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
    remember(ana, "Rex is a beagle.")
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
    admin.execute("select job_replica_set()")
    db.execute(insert, (ana.info.user, "after"))
    db.execute("update memory set metadata = '{}'")
    assert queued(ana) == 1
    db.execute("update memory set content = 'changed' where content = 'after'")
    db.execute("set row_security = off")  # as the scripts of pg_dump
    db.execute(insert, (ana.info.user, "restored"))
    assert queued(ana) == 2
    assert run(admin) == (1, 1, 0)
    assert embedded(ana) == ["changed"]
    remember(ana, "Tom is a cat.")
    assert queued(ana) == 0
    admin.execute("select job_replica_set(false)")
    db.execute("reset row_security")
    db.execute(insert, (ana.info.user, "off again"))
    assert queued(ana) == 0
    with fails("22004"):
        admin.execute("select job_replica_set(null)")


def test_without_pg_cron_a_schedule_says_what_else_there_is(admin: psycopg.Connection) -> None:
    with fails("55000", hint="mindful worker"):
        admin.execute("select job_schedule()")
