"""Where tests read the wall clock. A busy machine makes one measurement long, a deaf loop makes all of them long."""

from __future__ import annotations

import time
from collections.abc import Iterator

TRIES = 10
HANG_S = 60.0
"""Longer than anything takes that does not hang, on a machine that other processes keep busy."""


class Clock:
    """The time since it started, until it stopped."""

    def __init__(self) -> None:
        self.start()

    def start(self, after_s: float = 0) -> None:
        """Begin again, now or at a time to come: when a time-out will end a statement."""
        self._started = time.perf_counter() + after_s
        self._stopped: float | None = None

    def stop(self) -> None:
        """Leave out what follows."""
        self._stopped = time.perf_counter()

    def begun(self) -> bool:
        """Whether the time to come has come."""
        return time.perf_counter() > self._started

    @property
    def taken_s(self) -> float:
        """The time taken, for those who print it: a test compares it by `within` alone."""
        return (self._stopped or time.perf_counter()) - self._started


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
