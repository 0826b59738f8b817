"""Slots: only so many backends run a model at once, the others sleep in line."""

from __future__ import annotations

import os
import time
from types import TracebackType

from mindful.ports import Database

_SLICE_S = 0.5
"""How long a backend computes before it lets the next in line go first."""


class Turn:
    """A backend's turn at computing, a context to compute within; it may be entered again and again.

    It passes as Interrupts to a model, which looks for interrupts often: there a long turn goes back into line, so
    that short calls do not wait for long ones to end.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._slot: int | None = None
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
        if self._slot is not None and time.monotonic() - self._since > _SLICE_S:
            self._release()
            self._take()

    def pending(self) -> bool:
        """Tell whether a cancel is pending."""
        return self._db.pending()

    def _take(self) -> None:
        asked = time.monotonic()
        cores = len(os.sched_getaffinity(0))
        self._slot = self._db.one("select mindful._slot_take($1) as slot", ("integer",), (cores,))["slot"]
        self._since = time.monotonic()
        self.waited_ms += (self._since - asked) * 1000

    def _release(self) -> None:
        if self._slot is not None:
            slot, self._slot = self._slot, None
            self._db.rows(
                "select pg_catalog.pg_advisory_unlock(mindful._slot_class(), $1)", ("integer",), (slot,)
            )
