"""The queue of memories to embed. The procedure worker_run commits, so it has no call here: `mindful worker` has."""

from __future__ import annotations

from mindful_client.calls.statement import DEFAULT, Call, nothing, row, scalar
from mindful_client.types import JobOutcome


def embedding_run(*, max_jobs: int = DEFAULT, max_seconds: float = DEFAULT) -> Call[JobOutcome]:
    """Embed memories that wait: the caller's own, or an administrator's call those of all.

    Raises InvalidInputError.
    """
    return row("embedding_run", locals(), JobOutcome)


def embedding_retry(*, model: str | None = DEFAULT) -> Call[int]:
    """Put dead letters back into the queue, of one model or of all; return how many."""
    return scalar("embedding_retry", locals())


def embedding_replica_set(*, enabled: bool = DEFAULT) -> Call[None]:
    """Say whether memories that replication writes are enqueued as they come. For administrators.

    Raises InvalidInputError.
    """
    return scalar("embedding_replica_set", locals(), convert=nothing)


def worker_schedule(*, schedule: str | None = DEFAULT) -> Call[bool]:
    """Have pg_cron run workers at a schedule, or no longer (None); return whether it does.

    Raises NotReadyError (no pg_cron), NotAllowedError.
    """
    return scalar("worker_schedule", locals())
