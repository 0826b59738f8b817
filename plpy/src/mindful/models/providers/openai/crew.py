"""Requests of one call that wait for a server side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from mindful.core.apart import Worker
from mindful.core.ports import Interrupts
from mindful.models.providers.openai.connection import LOOK_S

T = TypeVar("T")


class _Stopped(Exception):  # noqa: N818
    """Ends a request of a thread."""


class _Signal:
    """The interrupts of a thread: only the main one may ask the database."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        if self._event.is_set():
            raise _Stopped

    def pending(self) -> bool:
        return self._event.is_set()


class _Crew(Generic[T]):
    """Threads that take jobs until none is left, or one has failed."""

    def __init__(self, jobs: Sequence[Callable[[Interrupts], T]]) -> None:
        self._jobs = jobs
        self._left = iter(range(len(jobs)))
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self._results: dict[int, T] = {}
        self.stop = _Signal()

    def run(self) -> None:
        try:
            while not self.stop.pending():
                with self._lock:
                    at = next(self._left, None)
                if at is None:
                    return
                self._results[at] = self._jobs[at](self.stop)
        except BaseException as error:
            self._errors.append(error)
            self.stop.set()

    def results(self) -> list[T]:
        if failed := next((error for error in self._errors if not isinstance(error, _Stopped)), None):
            raise failed
        return [self._results[at] for at in range(len(self._jobs))]


def side_by_side(jobs: Sequence[Callable[[Interrupts], T]], width: int, interrupts: Interrupts) -> list[T]:
    """Do jobs that wait for a server, some at once, in threads; a cancel ends all of them."""
    if len(jobs) == 1 or width < 2:
        return [job(interrupts) for job in jobs]
    crew = _Crew(jobs)
    threads = [Worker(crew.run) for _ in range(min(width, len(jobs)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                interrupts.check()
                thread.join(LOOK_S)
    finally:
        crew.stop.set()
        for thread in threads:
            thread.join()
    return crew.results()
