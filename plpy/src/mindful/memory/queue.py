"""The queue of memories to embed, batch by batch."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from mindful.core.entry import sql_function, writing_function
from mindful.core.errors import MindfulError
from mindful.core.ports import Database, Embedder, Row, Vector
from mindful.core.slot import Turn
from mindful.core.vector import to_text
from mindful.models import runtime
from mindful.models.parts import embed_whole

_BATCH = 64
"""Jobs that are locked at the same time. They take under half a second, which a cancelled worker loses."""

_EMBEDDER_ERRORS = (
    MindfulError,
    ArithmeticError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    ValueError,
)
"""Errors that a model may raise. Errors of SQL, such as a cancel, are not among them."""

_KEYS = ("text[]", "bigint[]", "text[]")

Outcome = dict[str, int]
_Key = tuple[str, int, str]
_Pair = tuple[Row, Vector]


@sql_function
def job_run_own(db: Database, max_jobs: int, max_seconds: float) -> Outcome:
    """Embed the jobs of the caller's tenant."""
    return _run(db, max_jobs, max_seconds)


@sql_function
def job_run_all(db: Database, max_jobs: int, max_seconds: float) -> Outcome:
    """Embed the jobs of all tenants: the SQL function runs with the owner's rights."""
    return _run(db, max_jobs, max_seconds)


@writing_function
def worker_run(db: Database, max_seconds: float | None, idle: bool | None) -> None:
    """Run batch after batch, each in its own transaction."""
    db.commit()  # This fails within a transaction, before any work is done.
    # The name has its schema: a procedure that commits cannot pin the search path.
    run = "select embedded, dropped, failed from mindful.embedding_run($1, $2)"
    left, end = max_seconds, time.monotonic() + (max_seconds or 0)
    while True:
        done = db.one(run, ("integer", "real"), (_BATCH, left))
        db.commit()
        left = max(end - time.monotonic(), 0.0)
        worked = any(done.values())
        if not left or not (worked or idle):
            return
        if not worked:
            db.sleep(min(left, 1.0))
            db.commit()


def _run(db: Database, max_jobs: int, max_seconds: float) -> Outcome:
    end = time.monotonic() + max_seconds
    outcome = {"embedded": 0, "dropped": 0, "failed": 0}
    while (done := sum(outcome.values())) < max_jobs:
        jobs = db.rows(
            "select tenant, id, model, content_hash, content from _mindful.job_take($1)",
            ("integer",),
            (min(_BATCH, max_jobs - done),),
        )
        for model, group in itertools.groupby(sorted(jobs, key=_order), key=lambda job: str(job["model"])):
            _Batch(db, model, list(group), outcome).work()
        if not jobs or time.monotonic() >= end:
            break
    return outcome


def _order(job: Row) -> tuple[str, str]:
    return job["model"], job["tenant"]


class _Batch:
    """Jobs of one model. This transaction has locked their rows."""

    def __init__(self, db: Database, model: str, jobs: Sequence[Row], outcome: Outcome) -> None:
        self._db = db
        self._model = model
        self._jobs = jobs
        self._outcome = outcome
        self._stored = 0
        self._failed: set[_Key] = set()

    def work(self) -> None:
        """Embed the texts, store the vectors and delete the jobs."""
        for tenant, group in itertools.groupby(self._embedded(), key=lambda pair: str(pair[0]["tenant"])):
            self._store(tenant, list(group))
        settled = self._settle([job for job in self._jobs if _key(job) not in self._failed])
        self._outcome["embedded"] += self._stored
        self._outcome["dropped"] += settled - self._stored
        self._outcome["failed"] += len(self._failed)

    def _embedded(self) -> list[_Pair]:
        wanted = self._wanted()
        if not wanted:
            return []
        try:
            _, embedder = runtime.embedder(self._db, self._model)
        except _EMBEDDER_ERRORS as error:
            for tenant, group in itertools.groupby(wanted, key=lambda job: str(job["tenant"])):
                self._fail(tenant, list(group), str(error))
            return []
        return self._vectors(embedder, wanted)

    def _wanted(self) -> list[Row]:
        """Leave out jobs whose text has changed, or has an embedding already."""
        embedded = self._db.rows(
            f"""select k.tenant, k.id
                from rows from (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3))
                    k (tenant, id, content_hash)
                join mindful.{self._relation()} e using (tenant, id, content_hash)""",
            _KEYS,
            _columns(self._jobs),
        )
        done = {(row["tenant"], row["id"]) for row in embedded}
        return [
            job for job in self._jobs if job["content"] is not None and (job["tenant"], job["id"]) not in done
        ]

    def _relation(self) -> str:
        named = self._db.one("select _mindful.embedding_table($1) as relation", ("text",), (self._model,))
        return str(named["relation"])

    def _vectors(self, embedder: Embedder, jobs: Sequence[Row]) -> list[_Pair]:
        """Embed a batch. If that fails, embed its texts one by one."""
        try:
            with Turn(self._db, served=embedder.served) as turn:
                return list(
                    zip(jobs, embed_whole(embedder, [job["content"] for job in jobs], turn), strict=True)
                )
        except _EMBEDDER_ERRORS as error:
            if len(jobs) == 1:
                self._fail(jobs[0]["tenant"], jobs, str(error))
                return []
        return [pair for job in jobs for pair in self._vectors(embedder, [job])]

    def _store(self, tenant: str, pairs: Sequence[_Pair]) -> None:
        """Store vectors of one tenant. If that fails, store them one by one."""
        jobs = [job for job, _ in pairs]
        _, ids, hashes = _columns(jobs)
        result = self._db.one(
            "select stored, error from _mindful.job_store($1, $2, $3, $4, $5)",
            ("text", "text", "bigint[]", "text[]", "text[]"),
            (self._model, tenant, ids, hashes, [to_text(vector) for _, vector in pairs]),
        )
        if result["error"] is None:
            self._stored += result["stored"]
        elif len(pairs) == 1:
            self._fail(tenant, jobs, result["error"])
        else:
            for pair in pairs:
                self._store(tenant, [pair])

    def _fail(self, tenant: str, jobs: Sequence[Row], error: str) -> None:
        _, ids, hashes = _columns(jobs)
        self._db.rows(
            "select _mindful.job_fail($1, $2, $3, $4, $5)",
            ("text", "text", "bigint[]", "text[]", "text"),
            (self._model, tenant, ids, hashes, error.replace("\0", "")),
        )
        self._failed.update(map(_key, jobs))

    def _settle(self, jobs: Sequence[Row]) -> int:
        if not jobs:
            return 0
        settled = self._db.one(
            "select _mindful.job_settle($1, $2, $3, $4) as jobs",
            ("text", *_KEYS),
            (self._model, *_columns(jobs)),
        )
        return int(settled["jobs"])


def _key(job: Row) -> _Key:
    return job["tenant"], job["id"], job["content_hash"]


def _columns(jobs: Sequence[Row]) -> tuple[list[str], list[int], list[str]]:
    return (
        [job["tenant"] for job in jobs],
        [job["id"] for job in jobs],
        [job["content_hash"] for job in jobs],
    )
