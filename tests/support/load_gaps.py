"""Run by the server's Python: load a model, and print the longest time without a look for a cancel, and how a cancel
ends the load. Usage: load_gaps.py GGUF."""

from __future__ import annotations

import sys
import time

from mindful.models.providers.llama.weights import Weights


class Cancelled(BaseException):
    """A cancel."""


class Watch:
    """Interrupts that note when they were looked for; pending from a number of looks on."""

    threads = 1

    def __init__(self, after: float) -> None:
        self.after = after
        self.looks = [time.perf_counter()]

    def pending(self) -> bool:
        """Note the time."""
        self.looks.append(time.perf_counter())
        return len(self.looks) > self.after

    def check(self) -> None:
        """Raise if a cancel is pending."""
        if self.pending():
            raise Cancelled


def main() -> None:
    """Measure three times, as the machine is shared."""
    gaps = []
    for _ in range(3):
        watch = Watch(float("inf"))
        weights = Weights(sys.argv[1], interrupts=watch)
        watch.pending()
        weights.close()
        gaps.append(max(b - a for a, b in zip(watch.looks, watch.looks[1:], strict=False)))
    try:
        Weights(sys.argv[1], interrupts=Watch(1))
    except Cancelled:
        print(min(gaps), "cancelled")


main()
