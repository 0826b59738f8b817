"""Where tests read the wall clock. A busy machine makes one measurement long, a deaf loop makes all of them long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TRIES = 10
HANG_S = 60.0
"""Longer than anything takes that does not hang, on a machine that other processes keep busy."""


class Clock:
    """The time since it started, until it stopped."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self.start()

    def of(self, pid: int) -> None:
        """Leave out for how long a process of this machine is ready to run while others have the processors."""
        self._pid = pid
        self._waited = _waited_ns(pid)

    def start(self, after_s: float = 0) -> None:
        """Begin again, now or at a time to come: when a time-out will end a statement."""
        self._started = time.perf_counter() + after_s
        self._stopped: float | None = None
        if self._pid is not None:
            threading.Timer(after_s, self.of, (self._pid,)).start() if after_s else self.of(self._pid)

    def stop(self) -> None:
        """Leave out what follows."""
        self._stopped = time.perf_counter() - self._starved_s()

    def begun(self) -> bool:
        """Whether the time to come has come."""
        return time.perf_counter() > self._started

    @property
    def taken_s(self) -> float:
        """The time taken, for those who print it: a test compares it by `within` alone."""
        if self._stopped is None:
            self.stop()
        assert self._stopped is not None
        return self._stopped - self._started

    def _starved_s(self) -> float:
        """The longest that a thread of the process waited for a processor. A process that is gone has none."""
        if self._pid is None:
            return 0
        waits = (waited - self._waited.get(task, 0) for task, waited in _waited_ns(self._pid).items())
        return max(waits, default=0) / 1e9


def _waited_ns(pid: int) -> dict[str, int]:
    """How long each thread of a process has waited on the run queue, as Linux counts."""
    found = {}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found[task.name] = int((task / "schedstat").read_text().split()[1])
    return found


class LateError(AssertionError):
    """No try ended in time."""

    def __init__(self, limit_s: float, taken_s: list[float]) -> None:
        super().__init__(
            f"{limit_s} s is the limit, but {len(taken_s)} tries took {min(taken_s):.3f} s or more"
        )
        self.best_s = min(taken_s)


def within(limit_s: float, at_least_s: float = float("-inf"), tries: int = TRIES) -> Iterator[Clock]:
    """Repeat a loop's body until it ends in time: `for clock in within(0.2): ...`. Raise LateError if it never does.

    The body does all of what is measured again. It moves the clock's start and stop where not all of it counts, and
    never breaks off the loop, as the time is looked at when the body has ended.
    """
    taken_s: list[float] = []
    while len(taken_s) < tries:
        clock = Clock()
        yield clock
        taken_s.append(clock.taken_s)
        assert taken_s[-1] >= at_least_s
        if taken_s[-1] < limit_s:
            return
    raise LateError(limit_s, taken_s)


class Deadline:
    """The time until which a test waits for what is about to happen: a guard against a hang, never a measurement."""

    def __init__(self, after_s: float = HANG_S) -> None:
        assert after_s >= 20, "a deadline is no measurement: use within()"
        self._at = time.monotonic() + after_s

    @property
    def left_s(self) -> float:
        """The time left; 0 once it is passed."""
        return max(self._at - time.monotonic(), 0)

    def passed(self) -> bool:
        """Whether the time is up."""
        return not self.left_s
