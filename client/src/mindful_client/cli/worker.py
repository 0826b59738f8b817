"""mindful worker."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import time
from collections.abc import Iterator
from types import FrameType

import click
import psycopg

from mindful_client._methods import APPLICATION
from mindful_client.cli.output import report, show
from mindful_client.client import Client
from mindful_client.errors import NotReadyError, QueryCancelledError, UnavailableError, translated

_BATCH = 64
_LOOK_S = 1.0
"""Longest wait for notifications. A stop, or the next try of a failed job, is noticed after it."""
_DAY_S = 86_400.0
_PAUSE_S = 5.0
"""Wait before another try if the server cannot do the work now."""


@click.command()
@click.option("--once", is_flag=True, help="Exit when the queue is empty.")
@click.option(
    "--sweep",
    "sweep_minutes",
    type=click.FloatRange(min=0),
    default=10,
    show_default=True,
    help="Minutes between searches for memories without an embedding; 0 turns them off.",
)
@click.option(
    "--consolidate", is_flag=True, help="Also draw facts for tenants with the setting consolidation_after."
)
@click.option("--adapt", is_flag=True, help="Also tune settings once a day if there are new labels.")
@click.pass_context
def worker(context: click.Context, once: bool, sweep_minutes: float, consolidate: bool, adapt: bool) -> None:
    """Embed queued memories as they come, and once a day delete what the settings retention_... no longer keep.

    Memories are queued with the setting embedding_mode = async. A worker of an administrator works for all tenants.
    Any number of workers may run. Ctrl-C ends a worker after its batch, a second Ctrl-C at once; the jobs it did
    not finish stay queued.
    """
    target = context.find_root().params
    _Worker(target["dsn"], target["tenant"], once, sweep_minutes * 60, consolidate, adapt).run()


class _Worker:
    """A loop over batches until a signal stops it."""

    def __init__(
        self, dsn: str, tenant: str | None, once: bool, sweep_s: float, consolidate: bool, adapt: bool
    ) -> None:
        self._dsn = dsn
        self._tenant = tenant
        self._once = once
        self._consolidates = consolidate
        self._sweep_s = sweep_s
        self._next_sweep = 0.0 if sweep_s else float("inf")
        self._next_tuning = 0.0 if adapt else float("inf")
        self._next_retention = 0.0
        self._client: Client | None = None
        self._stopped = False
        self._embedded = 0

    def run(self) -> None:
        """Work. If the connection breaks, connect again."""
        with self._interruptible():
            while not self._stopped:
                try:
                    with translated(), self._connection() as connection:
                        self._client = Client(connection, tenant=self._tenant)
                        self._work(self._client, connection)
                except QueryCancelledError as error:
                    if not self._stopped:
                        report(error)
                except UnavailableError as error:
                    if self._client is None or self._stopped:  # never connected, or stopping
                        raise
                    report(error)
                    self._pause()
        show(f"Stopped after {self._embedded} embeddings.")

    def _connection(self) -> psycopg.Connection:
        return psycopg.connect(self._dsn, autocommit=True, fallback_application_name=APPLICATION)

    def _work(self, client: Client, connection: psycopg.Connection) -> None:
        connection.execute("listen mindful_job")
        while not self._stopped:
            try:
                # What is due once a day waits for no empty queue, and retention for no embedder.
                worked = self._retain(client) + self._sweep(client) + self._batch(client)
                worked += self._consolidate(client) + self._adapt(client)
            except NotReadyError as error:
                report(error)
                self._pause()
                continue
            if worked:
                continue
            if self._once:
                self._stopped = True
                return
            for _ in connection.notifies(timeout=_LOOK_S, stop_after=1):
                pass

    def _sweep(self, client: Client) -> int:
        if time.monotonic() < self._next_sweep:
            return 0
        self._next_sweep = time.monotonic() + self._sweep_s
        found = client.embedding_enqueue()
        if found:
            self._say(f"{found} memories without an embedding found")
        return found

    def _consolidate(self, client: Client) -> int:
        runs = client.consolidation_run() if self._consolidates else 0
        if runs:
            self._say(f"{runs} runs of consolidation")
        return runs

    def _adapt(self, client: Client) -> int:
        if time.monotonic() < self._next_tuning:
            return 0
        self._next_tuning = time.monotonic() + _DAY_S
        runs = client.tuning_run()
        if runs:
            self._say(f"settings adapted for {runs}")
        return runs

    def _retain(self, client: Client) -> int:
        if time.monotonic() < self._next_retention:
            return 0
        self._next_retention = time.monotonic() + _DAY_S
        forgotten = [one for one in client.retention_run() if one.relation == "memory"]
        for one in forgotten:
            self._say(f"{one.rows} memories {one.action} by retention")
        return len(forgotten)

    def _batch(self, client: Client) -> int:
        done = dataclasses.asdict(client.embedding_run(max_jobs=_BATCH))
        self._embedded += done["embedded"]
        parts = [f"{count} {what}" for what, count in done.items() if count]
        if parts:
            self._say(", ".join(parts))
        return sum(done.values())

    def _say(self, what: str) -> None:
        show(f"{time.strftime('%H:%M:%S')}  {what}")

    def _pause(self) -> None:
        end = time.monotonic() + _PAUSE_S
        while not self._stopped and time.monotonic() < end:
            time.sleep(0.1)

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let a signal end the loop, and a second one the batch."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            if self._stopped and self._client is not None:
                self._client.cancel()
            self._stopped = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
