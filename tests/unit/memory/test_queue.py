"""What a worker does with jobs of the queue, against a registry of jobs in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from mindful.core.errors import MindfulError
from mindful.core.ports import Row
from mindful.memory import queue
from unit.fakes import FakeDatabase, scripted, wrapped


def job(number: int, content: str | None = "text", tenant: str = "ana", model: str = "embedder") -> Row:
    return {
        "tenant": tenant,
        "id": number,
        "model": model,
        "content_hash": f"hash {number}",
        "content": content,
    }


class Queue(FakeDatabase):
    """Gives jobs, and keeps what becomes of them."""

    def __init__(
        self, jobs: Sequence[Row], held: Sequence[Row] = (), broken: str = "\0", **options: Any
    ) -> None:
        self.waiting = list(jobs)
        self.taken: list[int] = []
        self.stored: list[tuple[str, list[int]]] = []
        self.failed: list[tuple[str, list[int], str]] = []
        self.settled: list[int] = []
        self.broken = broken
        super().__init__(
            scripted({"dims": 8} | options)
            | {
                "_mindful.job_take": self.take,
                "join mindful.embedding_x": held,
                "_mindful.embedding_table": [{"relation": "embedding_x"}],
                "_mindful.job_store": self.store,
                "_mindful.job_fail": self.fail,
                "_mindful.job_settle": self.settle,
            }
        )

    def take(self, most: int) -> Sequence[Row]:
        """Take jobs."""
        self.taken.append(most)
        found, self.waiting = self.waiting[:most], self.waiting[most:]
        return found

    def store(
        self, _model: str, tenant: str, ids: list[int], hashes: list[str], vectors: list[str]
    ) -> Sequence[Row]:
        """Store vectors."""
        assert len(ids) == len(hashes) == len(vectors)
        if any(self.broken in text for text in hashes):
            return [{"stored": 0, "error": "no room"}]
        self.stored.append((tenant, ids))
        return [{"stored": len(ids), "error": None}]

    def fail(self, _model: str, tenant: str, ids: list[int], _hashes: list[str], error: str) -> Sequence[Row]:
        """Note failures."""
        self.failed.append((tenant, ids, error))
        return []

    def settle(self, _model: str, _tenants: list[str], ids: list[int], _hashes: list[str]) -> Sequence[Row]:
        """Take jobs off."""
        self.settled += ids
        return [{"jobs": len(ids)}]

    def run(self, max_jobs: int = 1000, max_seconds: float = 60) -> queue.Outcome:
        """Work."""
        found: queue.Outcome = wrapped(queue.job_run_own)(self, max_jobs, max_seconds)
        return found


def outcome(embedded: int = 0, dropped: int = 0, failed: int = 0) -> queue.Outcome:
    return {"embedded": embedded, "dropped": dropped, "failed": failed}


def test_an_empty_queue_is_looked_at_once() -> None:
    db = Queue([])
    assert (db.run(), db.taken) == (outcome(), [64])


def test_jobs_are_taken_in_batches_until_none_is_left() -> None:
    db = Queue([job(at) for at in range(150)])
    assert db.run() == outcome(embedded=150)
    assert db.taken == [64, 64, 64, 64]
    assert sorted(db.settled) == list(range(150))


@pytest.mark.parametrize(("most", "taken"), [(0, []), (1, [1]), (64, [64]), (65, [64, 1]), (100, [64, 36])])
def test_no_more_than_wanted_are_taken(most: int, taken: list[int]) -> None:
    db = Queue([job(at) for at in range(200)])
    assert db.run(most) == outcome(embedded=most)
    assert db.taken == taken


def test_a_batch_is_the_last_when_the_time_is_up() -> None:
    db = Queue([job(at) for at in range(200)])
    assert db.run(max_seconds=0) == outcome(embedded=64)


def test_vectors_are_stored_tenant_by_tenant() -> None:
    db = Queue([job(1, tenant="bob"), job(2), job(3, tenant="bob"), job(4)])
    assert db.run() == outcome(embedded=4)
    assert db.stored == [("ana", [2, 4]), ("bob", [1, 3])]


def test_what_is_gone_or_embedded_already_is_dropped() -> None:
    db = Queue([job(1, None), job(2), job(3)], held=[{"tenant": "ana", "id": 3}])
    assert db.run() == outcome(embedded=1, dropped=2)
    assert db.stored == [("ana", [2])]
    assert sorted(db.settled) == [1, 2, 3]


def test_the_like_number_of_another_tenant_is_not_dropped() -> None:
    db = Queue([job(3, tenant="bob")], held=[{"tenant": "ana", "id": 3}])
    assert db.run() == outcome(embedded=1)


def test_a_text_that_the_model_refuses_fails_alone() -> None:
    db = Queue([job(1), job(2, "bad"), job(3, "bad", "bob"), job(4)], refused="bad")
    assert db.run() == outcome(embedded=2, failed=2)
    assert db.settled == [1, 4]
    assert [(tenant, ids) for tenant, ids, _ in db.failed] == [("ana", [2]), ("bob", [3])]
    assert all(error for *_, error in db.failed)


def test_a_vector_that_cannot_be_stored_fails_alone() -> None:
    db = Queue([job(1), job(2), job(3)], broken="hash 2")
    assert db.run() == outcome(embedded=2, failed=1)
    assert db.failed == [("ana", [2], "no room")]
    assert db.settled == [1, 3]


def test_a_model_that_is_not_there_fails_its_jobs_and_no_others() -> None:
    db = Queue([job(1), job(2, model="gone"), job(3, tenant="bob", model="gone")])
    db.answers["withdrawn_at is not null"] = []
    assert db.run() == outcome(embedded=1, failed=2)
    assert [(tenant, ids) for tenant, ids, _ in db.failed] == [("ana", [2]), ("bob", [3])]


def test_an_error_of_sql_is_not_taken_for_one_of_a_model() -> None:
    class BrokenError(Exception):
        """As a cancel is."""

    db = Queue([job(1)])

    def raised(*_: object) -> Sequence[Row]:
        raise BrokenError

    db.answers["_mindful.job_store"] = raised
    with pytest.raises(BrokenError):
        db.run()
    assert not issubclass(BrokenError, MindfulError)


class Worker(FakeDatabase):
    """A queue whose batches have these outcomes, and none after them."""

    def __init__(self, *batches: queue.Outcome) -> None:
        self.batches = list(batches)
        self.left: list[float | None] = []
        self.slept: list[float] = []
        super().__init__({"embedding_run": self.batch})

    def batch(self, size: int, left: float | None) -> Sequence[Row]:
        """Work on a batch."""
        assert size == 64
        self.left.append(left)
        return [self.batches.pop(0) if self.batches else outcome()]

    def sleep(self, seconds: float) -> None:
        """Note for how long."""
        self.slept.append(seconds)
        super().sleep(min(seconds, 0.01))


def work(db: Worker, max_seconds: float | None, idle: bool | None) -> None:
    wrapped(queue.worker_run)(db, max_seconds, idle)


def test_a_worker_works_while_there_is_work_and_commits_each_batch() -> None:
    db = Worker(outcome(embedded=64), outcome(failed=1), outcome(dropped=1))
    work(db, 60, False)
    assert (len(db.left), db.slept) == (4, [])
    assert db.commits == 5
    assert db.left[0] == 60
    assert all(0 < left <= 60 for left in db.left if left is not None)


def test_without_a_time_one_batch_is_done() -> None:
    for limit in (None, 0):
        db = Worker(outcome(embedded=64), outcome(embedded=64))
        work(db, limit, True)
        assert (db.left, db.commits) == ([limit], 2)


def test_an_idle_worker_sleeps_a_second_at_most_until_its_time_is_up() -> None:
    db = Worker(outcome(embedded=1))
    work(db, 0.05, True)
    assert len(db.slept) >= 2
    assert all(0 < seconds <= 0.05 for seconds in db.slept)
    long = Worker()
    long.sleep = lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt(seconds))  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt) as caught:
        work(long, 60, True)
    assert caught.value.args == (1.0,)
