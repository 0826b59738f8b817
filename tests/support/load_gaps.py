"""Run by the server's Python: load a model, and print the longest time without a look for a cancel, how a cancel ends
the load, and how one ends the imports after it. Usage: load_gaps.py GGUF."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from mindful.core.ports import ModelSpec
from mindful.models.providers.llama import load
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


class Imported(Watch):
    """A cancel that is pending once the generator's module is imported."""

    def __init__(self) -> None:
        super().__init__(float("inf"))

    def pending(self) -> bool:
        """Tell whether it is."""
        return "mindful.models.providers.llama.generator" in sys.modules


def end(work: Callable[[], object]) -> str:
    """Say how work ends."""
    try:
        work()
    except Cancelled:
        return "cancelled"
    return "done"


def main() -> None:
    """Measure three times, as the machine is shared."""
    gaps = []
    spec = ModelSpec("", "generator", "llama_cpp", sys.argv[1], "", {})
    for _ in range(3):
        watch = Watch(float("inf"))
        weights = Weights(sys.argv[1], interrupts=watch)
        watch.pending()
        weights.close()
        gaps.append(max(b - a for a, b in zip(watch.looks, watch.looks[1:], strict=False)))
    ends = [end(lambda: Weights(sys.argv[1], interrupts=Watch(2))), end(lambda: load(spec, Imported()))]
    print(min(gaps), *ends)


main()
