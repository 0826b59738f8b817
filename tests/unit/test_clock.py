"""No test fails by one measurement on the wall clock, which other processes make long."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.clock import TRIES, Clock, Deadline, LateError, within

TESTS = Path(__file__).parents[1]
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time_ns", "timeit", "getloadavg"}
MEASURED_ALONE = ("bench", "mutate")
"""Folders whose figures are printed."""
READERS = {"support/clock.py", "support/load_gaps.py", "support/served.py"}
"""The helper, and programs that run by themselves."""
PRINTERS = {"support/clock.py", "attack/conftest.py", "unit/test_clock.py"}


def nodes() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(TESTS.rglob("*.py")):
        name = str(path.relative_to(TESTS))
        if not name.startswith(MEASURED_ALONE):
            for node in ast.walk(ast.parse(path.read_text())):
                yield name, node


def reads(node: ast.AST) -> bool:
    """Whether something reads the wall clock to measure by it."""
    if isinstance(node, ast.Attribute):
        return node.attr in CLOCKS or (node.attr == "time" and ast.unparse(node) == "time.time")
    if isinstance(node, ast.ImportFrom):
        return node.module == "time" and any(one.name in CLOCKS | {"time"} for one in node.names)
    if isinstance(node, ast.Compare) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
        nows = (part for part in ast.walk(node) if isinstance(part, ast.Attribute) and part.attr == "now")
        return any(ast.unparse(now) == "datetime.now" for now in nows)
    return False


def breaks_off(node: ast.AST) -> bool:
    """Whether a loop by the helper can end before it looks at the time."""
    if not isinstance(node, ast.For) or not ast.unparse(node.iter).startswith(
        ("within(", "enumerate(within(")
    ):
        return False
    inner = [
        child for child in ast.walk(node) if isinstance(child, ast.For | ast.While) and child is not node
    ]
    of_inner = {child for loop in inner for child in ast.walk(loop) if isinstance(child, ast.Break)}
    return any(
        isinstance(child, ast.Return) or (isinstance(child, ast.Break) and child not in of_inner)
        for child in ast.walk(node)
    )


def hurries(node: ast.AST) -> bool:
    """Whether something is waited for, and soon given up: by a named timeout, or by a limit in an assertion."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        limits = [word.value for word in node.keywords if word.arg == "timeout"]
        stops = any(word.arg == "stop_after" for word in node.keywords)
        if node.func.attr in ("join", "communicate") or (node.func.attr == "notifies" and stops):
            return any(is_short(limit) for limit in limits)
    elif isinstance(node, ast.Assert):
        calls = (part for part in ast.walk(node.test) if isinstance(part, ast.Call))
        return any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "wait"
            and any(map(is_short, call.args))
            for call in calls
            if not any(isinstance(part, ast.Lambda) for part in ast.walk(node.test))
        )
    return False


def is_short(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value < 20


def found() -> dict[str, list[str]]:
    """Name the lines of code of the tests by what they do, and their files."""
    tests: dict[str, Callable[[str, ast.AST], bool]] = {
        "reads": lambda name, node: reads(node) and name not in READERS,
        "prints": lambda name, node: (
            isinstance(node, ast.Attribute) and node.attr == "taken_s" and name not in PRINTERS
        ),
        "breaks": lambda name, node: breaks_off(node),
        "hurries": lambda name, node: hurries(node),
    }
    lines: dict[str, list[str]] = {holds: [] for holds in tests}
    for name, node in nodes():
        for holds, test in tests.items():
            if test(name, node):
                lines[holds].append(f"{name}:{getattr(node, 'lineno', 0)}")
    return lines


def test_no_test_reads_the_wall_clock_but_by_the_helper() -> None:
    lines = found()
    assert lines["reads"] == [], (
        "measure by `for clock in within(limit_s)`, wait by Deadline(), of support.clock"
    )
    assert lines["prints"] == [], "what was taken is compared by within() alone"
    assert lines["breaks"] == [], "a loop by within() is never broken off"
    assert lines["hurries"] == [], "what guards against a hang waits for a minute"


@pytest.mark.parametrize(
    "code",
    [
        "assert time.monotonic() - started < 1",
        "from time import perf_counter",
        "timeit.timeit(call)",
        "assert datetime.now(UTC) - started < limit",
        "os.getloadavg()",
    ],
)
def test_a_single_measurement_is_found(code: str) -> None:
    assert any(reads(node) for node in ast.walk(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["thread.join(timeout=5)", "assert closed.wait(2)", "ana.notifies(timeout=1, stop_after=1)"]
)
def test_a_wait_that_soon_gives_up_is_found(code: str) -> None:
    assert any(hurries(node) for node in ast.walk(ast.parse(code)))


def test_a_loop_that_is_broken_off_is_found() -> None:
    assert breaks_off(ast.parse("for clock in within(1):\n    if call():\n        break").body[0])
    assert not breaks_off(ast.parse("for clock in within(1):\n    for a in b:\n        break").body[0])


def naps(*seconds: float) -> int:
    """Sleep so long by each try, and count the tries."""
    tries = iter(seconds)
    for _ in within(0.05):
        time.sleep(next(tries))
    return len(seconds) - len(list(tries))


def test_what_is_late_each_time_fails_and_what_is_late_once_does_not() -> None:
    with pytest.raises(LateError, match=f"{TRIES} tries took 0.[01]"):
        naps(*[0.06] * TRIES)
    assert naps(0.06, *[0.0] * TRIES) >= 2


def test_what_ends_too_early_fails() -> None:
    with pytest.raises(AssertionError):
        list(within(1, at_least_s=0.5))


def test_a_clock_measures_from_its_start_to_its_stop() -> None:
    clock = Clock()
    clock.start(after_s=60)
    assert not clock.begun()
    clock.stop()
    assert clock.taken_s < 0
    clock.start()
    assert clock.begun()


def test_a_deadline_is_no_measurement() -> None:
    assert not Deadline().passed()
    with pytest.raises(AssertionError):
        Deadline(1)


def test_a_clock_leaves_out_for_how_long_a_process_waits_for_a_processor() -> None:
    processor = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", processor, sys.executable, "-c", "while True: pass"]
    with ExitStack() as started:
        spinning = [started.enter_context(subprocess.Popen(command)) for _ in range(3)]
        for process in spinning:
            started.callback(process.kill)
        time.sleep(0.5)
        alone, shared = Clock(), Clock()
        shared.of(spinning[0].pid)
        time.sleep(1)
        shared.stop()
        alone.stop()
        assert 0 < shared.taken_s < 0.8 * alone.taken_s  # a third is left of it, and the rest is its own
