"""Work in a thread beside the one that the server's events reach."""

from __future__ import annotations

import threading

import pytest
from mindful.core.apart import apart
from support.clock import within
from unit.fakes import FakeDatabase


class Cancelled(FakeDatabase):
    """A cancel is pending from some look on. No check raises."""

    def __init__(self, after: int) -> None:
        super().__init__({})
        self.left = after

    def pending(self) -> bool:
        """Tell whether it is."""
        self.left -= 1
        return self.left < 0


def test_the_result_and_the_error_of_work_are_the_callers() -> None:
    assert apart(lambda stopped: (stopped.is_set(), threading.get_ident()), FakeDatabase({})) != (
        False,
        threading.get_ident(),
    )

    def failing(_: threading.Event) -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        apart(failing, FakeDatabase({}))


def test_a_cancel_is_told_and_the_work_waited_for() -> None:
    for _ in within(10):
        assert apart(lambda stopped: stopped.wait(30), Cancelled(3))
    assert not apart(lambda stopped: stopped.wait(0.1), FakeDatabase({}))


def test_work_does_not_start_if_a_cancel_is_already_pending() -> None:
    class Stopped(FakeDatabase):
        def check(self) -> None:
            raise KeyboardInterrupt

    started: list[threading.Event] = []
    with pytest.raises(KeyboardInterrupt):
        apart(started.append, Stopped({}))
    assert not started
