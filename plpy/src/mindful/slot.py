"""Slots: only so many backends run a model at once, the others sleep in line."""

from __future__ import annotations

import os
import time
from types import TracebackType

from mindful.ports import Database

_SLICE_S = 0.5
"""How long a backend computes before it lets the next in line go first."""
_WIDE_SLICE_S = 0.1
"""The same for one that has more than its own slot: who comes in the meantime shall not wait long."""


class Turn:
    """A backend's turn at computing, a context to compute within; it may be entered again and again.

    It passes as Interrupts to a model, which looks for interrupts often: there a long turn goes back into line, so
    that short calls do not wait for long ones to end. A wide one takes the slots that are free too, a thread for each:
    for batches, which gain by them.
    """

    def __init__(self, db: Database, *, wide: bool = False) -> None:
        self._db = db
        self._wide = wide
        self._slots: list[int] = []
        self._since = 0.0
        self.waited_ms = 0.0

    def __enter__(self) -> Turn:
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def check(self) -> None:
        """Raise if a cancel is pending; let others go first if this turn was long."""
        self._db.check()
        if self._slots and time.monotonic() - self._since > (_WIDE_SLICE_S if self._wide else _SLICE_S):
            self._release()
            self._take()

    def pending(self) -> bool:
        """Tell whether a cancel is pending."""
        return self._db.pending()

    @property
    def threads(self) -> int:
        """How many threads may compute."""
        return max(len(self._slots), 1)

    def _take(self) -> None:
        asked = time.monotonic()
        cores = len(os.sched_getaffinity(0))
        self._slots = [self._db.one("select mindful._slot_take($1) as slot", ("integer",), (cores,))["slot"]]
        if self._wide:
            more = "select mindful._slot_more($1, $2) as slots"
            self._slots += self._db.one(more, ("integer", "integer"), (cores, *self._slots))["slots"]
        self._since = time.monotonic()
        self.waited_ms += (self._since - asked) * 1000

    def _release(self) -> None:
        if self._slots:
            slots, self._slots = self._slots, []
            self._db.rows(
                "select pg_catalog.pg_advisory_unlock(mindful._slot_class(), s) from pg_catalog.unnest($1) s",
                ("integer[]",),
                (slots,),
            )
