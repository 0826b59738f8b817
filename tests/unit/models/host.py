"""A backend for providers, without PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from support.clock import Clock


class CancelledError(Exception):
    """What a cancel raises."""


class Host:
    """A backend whose user cancels at a time."""

    threads = 1

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self.cancels: Clock | None = None
        self.checks = 0

    def check(self) -> None:
        self.checks += 1
        if self.pending():
            raise CancelledError

    def pending(self) -> bool:
        return self.cancels is not None and self.cancels.begun()

    def cancel(self, clock: Clock, after_s: float) -> None:
        """Cancel at a time to come, from which on the clock measures."""
        clock.start(after_s)
        self.cancels = clock

    def directory(self) -> str:
        return self._directory
