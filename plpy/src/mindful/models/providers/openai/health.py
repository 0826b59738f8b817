"""The health of a model's server, as this process sees it."""

from __future__ import annotations

import time

from mindful.core.errors import EngineError
from mindful.models.providers.openai.address import Address

_FAILURES = 3
"""Calls that fail in a row before others fail at once."""
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0


class Health:
    """What this process knows of a server, and whether to ask it at all (a circuit breaker)."""

    def __init__(self) -> None:
        self.failures = 0
        self.latency_ms: float | None = None
        self.last_error: str | None = None
        self._paused_until = 0.0
        self._pause_s = _PAUSE_S

    def check(self, address: Address) -> None:
        """Raise if the server failed so often that asking it again is put off."""
        left = self._paused_until - time.monotonic()
        if left > 0:
            raise EngineError(
                f"the server {address.origin} failed {self.failures} times in a row, the last time because "
                f"{self.last_error}; it is asked again in {left:.1f} s",
                "Start it again, or see its log.",
            )

    def good(self, latency_ms: float) -> None:
        """Note an answer."""
        self.failures, self.last_error, self._pause_s = 0, None, _PAUSE_S
        self.latency_ms = round(latency_ms, 1)

    def bad(self, why: str) -> None:
        """Note a failure; after some in a row the server is left alone, each time for twice as long."""
        self.failures += 1
        self.last_error = why
        if self.failures >= _FAILURES:
            self._paused_until = time.monotonic() + self._pause_s
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    @property
    def state(self) -> str:
        """Name the state: unknown, up, failing or paused."""
        if time.monotonic() < self._paused_until:
            return "paused"
        if self.failures:
            return "failing"
        return "unknown" if self.latency_ms is None else "up"
