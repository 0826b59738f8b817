"""Workers amid a batch: what others do meanwhile, and how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from support import Connect, fails, one
from support.clock import Deadline, within
from support.jobs import EMBEDDINGS, embedded, queued, run
from support.memories import remember_all
from support.slots import free, hold, waiting


@pytest.fixture
def stuck(connect: Connect, admin: psycopg.Connection) -> Iterator[Callable[..., Stuck]]:
    """Makes workers that have taken a batch, and wait for the only slot to embed it."""
    admin.execute("select setting_set('model_slots', '1', 'global')")
    holder = connect()
    made: list[Stuck] = []

    def start(role: str | None = None) -> Stuck:
        if not made:
            hold(holder)
        made.append(Stuck(connect(role), holder))
        return made[-1]

    yield start
    with contextlib.suppress(psycopg.OperationalError):  # a test may have crashed the server
        free(holder)
    for worker in made:
        worker.thread.join()


class Stuck:
    """A worker amid a batch."""

    def __init__(self, connection: psycopg.Connection, holder: psycopg.Connection) -> None:
        self.pid, self._holder = connection.info.backend_pid, holder
        self.error: psycopg.Error | None = None
        self.outcome: tuple[int, int, int] | None = None
        before = waiting(holder)
        self.thread = threading.Thread(target=self._work, args=(connection,))
        self.thread.start()
        deadline = Deadline()
        while waiting(holder) == before and self.thread.is_alive():
            assert not deadline.passed()
            time.sleep(0.01)

    def _work(self, connection: psycopg.Connection) -> None:
        try:
            self.outcome = run(connection)
        except psycopg.Error as error:
            self.error = error

    def release(self) -> tuple[int, int, int] | None:
        """Let it go on to its end."""
        free(self._holder)
        self.thread.join()
        return self.outcome


def test_a_writer_waits_for_no_model(
    queueing: None, stuck: Callable[..., Stuck], ana: psycopg.Connection
) -> None:
    """The only slot is taken."""
    stuck("ana")
    ana.execute("select setting_set('model_slot_wait_ms', '100')")
    remember_all(ana, "Rex is a beagle.", "Tom is a cat.")
    ana.execute("update memory set content = 'Tom is an old cat.' where content = 'Tom is a cat.'")
    assert queued(ana) == 3
    assert embedded(ana) == []
    assert one(ana, "select count(*) from memory_term where lexeme = 'beagl'") == 1


def test_a_stale_job_never_overwrites_a_newer_text(
    queueing: None, stuck: Callable[..., Stuck], ana: psycopg.Connection
) -> None:
    (memory_id,) = remember_all(ana, "The meeting is in Lisbon.")
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
    (memory_id, _) = remember_all(ana, "The meeting is in Lisbon.", "Tom is a cat.")
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
    remember_all(ana, *contents)
    for clock in within(0.2):
        worker = stuck()
        clock.of(worker.pid)
        assert one(db, "select count(*) from _mindful.job_take(1000)") == 100 - 64
        clock.start()
        db.execute(f"select {stop}(%s)", (worker.pid,))
        worker.thread.join()
        clock.stop()
        assert worker.error is not None
        assert worker.error.sqlstate in ("57014", "57P01")
        assert one(db, "select sum(attempts) from embedding_job") == 0
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
    remember_all(ana, *contents)
    run(ana, "10")
    before = ana.execute(f"select id, xmin::text from {EMBEDDINGS} order by id").fetchall()
    worker = stuck("ana")
    os.kill(worker.pid, signal.SIGKILL)
    worker.thread.join()
    deadline = Deadline()
    while True:
        try:
            again = connect("ana")
            outcome = run(again)
            break
        except psycopg.OperationalError:  # the server ends all connections before it recovers
            assert not deadline.passed()
            time.sleep(0.5)
    assert outcome == (90, 0, 0)
    assert embedded(again) == contents
    after = again.execute(f"select id, xmin::text from {EMBEDDINGS} order by id").fetchall()
    assert after[:10] == before


def test_two_workers_share_and_repeat_nothing(
    queueing: None, stuck: Callable[..., Stuck], ana: psycopg.Connection
) -> None:
    contents = [f"note {number}" for number in range(150)]
    remember_all(ana, *contents)
    first, second = stuck("ana"), stuck()
    first.release()
    second.thread.join()
    assert first.outcome is not None
    assert second.outcome is not None
    assert sum(first.outcome) + sum(second.outcome) == 150
    assert min(sum(first.outcome), sum(second.outcome)) >= 64
    assert embedded(ana) == contents


def test_a_worker_commits_batch_by_batch(queueing: None, ana: psycopg.Connection, connect: Connect) -> None:
    remember_all(ana, *(f"note {number}" for number in range(150)))
    worker = connect("ana")
    worker.execute("call worker_run()")
    assert len(embedded(ana)) == 150
    assert one(ana, f"select count(distinct xmin::text) from {EMBEDDINGS}") == 3
    with fails("55000", hint="Call it outside"), worker.transaction():
        worker.execute("call worker_run()")
    with fails("22023"):
        worker.execute("call worker_run(-1)")
    with fails("22004"):
        worker.execute("call worker_run(null)")


def test_an_idle_worker_waits_for_jobs_and_can_be_stopped(
    queueing: None, ana: psycopg.Connection, db: psycopg.Connection, connect: Connect
) -> None:
    worker, errors = connect("ana"), []

    def work() -> None:
        try:
            worker.execute("call worker_run(60, idle => true)")
        except psycopg.Error as error:
            errors.append(error.sqlstate)

    thread = threading.Thread(target=work)
    thread.start()
    remember_all(ana, "Rex is a beagle.")
    deadline = Deadline()
    while not embedded(ana):
        assert not deadline.passed()
        time.sleep(0.05)
    db.execute("select pg_cancel_backend(%s)", (worker.info.backend_pid,))
    thread.join()
    assert errors == ["57014"]
    assert embedded(ana) == ["Rex is a beagle."]
    for _ in within(5, at_least_s=1.4):
        worker.execute("call worker_run(1.5, idle => true)")
