"""Runs uninterruptible work in a thread, while the main thread handles the server's interrupts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from mindful.core.ports import Interrupts

T = TypeVar("T")

_POLL_SECONDS = 0.02


class Worker(threading.Thread, Generic[T]):
    """A thread that leaves signals to the main thread, where the server's handlers must run."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(name="mindful run", daemon=True)
        self._work = work
        self._results: list[T] = []
        self._errors: list[BaseException] = []

    def run(self) -> None:
        """Do the work."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._results.append(self._work())
        except BaseException as error:
            self._errors.append(error)

    def result(self) -> T:
        """Return the work's result, or raise its error. The thread must have ended."""
        if self._errors:
            raise self._errors[0]
        return self._results[0]


def apart(work: Callable[[threading.Event], T], interrupts: Interrupts) -> T:
    """Run work in a thread, take part in barriers meanwhile, and return the work's result.

    Work that a cancel precedes does not start. The work gets an event that is set when a cancel is pending. The work
    should then end, and the caller should check for interrupts. This function always waits for the thread: a process
    that exits while another thread runs C code can crash, and a crash restarts the server.
    """
    interrupts.check()
    stopped = threading.Event()
    thread = Worker(partial(work, stopped))
    thread.start()
    while thread.is_alive():
        if interrupts.pending():
            stopped.set()
        thread.join(_POLL_SECONDS)
    return thread.result()
