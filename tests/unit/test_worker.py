"""The loop of `mindful worker`."""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

import pytest
from mindful_client.errors import NotReadyError
from mindful_client.types import JobOutcome

worker = importlib.import_module("mindful_client.cli.worker")


class StoppedError(Exception):
    """Ends the loop of a worker."""


class Server:
    """A client and a connection whose queue is never empty."""

    def __init__(self, batches: int, error: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._batches = batches
        self._error = error

    def execute(self, _statement: str) -> None:
        """Listen to nothing."""

    def embedding_enqueue(self) -> int:
        return 0

    def embedding_run(self, max_jobs: int) -> JobOutcome:
        self.calls.append("batch")
        if self.calls.count("batch") == self._batches:
            raise StoppedError
        if self._error is not None:
            raise self._error
        return JobOutcome(max_jobs, 0, 0)

    def retention_run(self) -> list[Any]:
        self.calls.append("retention")
        return []

    def tuning_run(self) -> int:
        self.calls.append("tuning")
        return 1


def run(server: Server, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(worker, "_PAUSE_S", 0)
    with suppress(StoppedError):
        worker._Worker("", None, False, 600, False, adapt=True)._work(server, server)
    return server.calls


def test_a_queue_that_never_ends_delays_no_daily_work(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(Server(4), monkeypatch) == ["retention", "batch", "tuning", "batch", "batch", "batch"]


def test_retention_runs_where_no_text_can_be_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    error = NotReadyError("there is no embedder", sqlstate="55000")
    assert run(Server(3, error), monkeypatch) == ["retention", "batch", "batch", "batch"]


def test_daily_work_is_done_again_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_DAY_S", 0)
    assert run(Server(3), monkeypatch).count("retention") == 3
