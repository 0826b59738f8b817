"""The line for slots, with processes of its own."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mindful.core.errors import LockFileError, SlotsBusyError
from mindful.core.slot import Locks, Turn, slot_status
from unit.fakes import FakeDatabase, wrapped

PROCESS = """
import json, sys, time
from mindful.core.slot import Locks
locks = Locks(sys.argv[1])
for line in sys.stdin:
    name, *arguments = json.loads(line)
    print(json.dumps(getattr(locks, name)(*arguments)), flush=True)
"""


class Process:
    """Another process with the same file."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def __call__(self, name: str, *arguments: int) -> Any:
        """Call a method of its locks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([name, *arguments]), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start(db: FakeDatabase) -> Iterator[Callable[[], Process]]:
    with contextlib.ExitStack() as stack:

        def process() -> Process:
            made = Process(Path(db.directory(), "mindful.slots"))
            stack.callback(made.kill)
            return made

        yield process


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns look for waiting processes at each check."""
    monkeypatch.setattr("mindful.core.slot._WIDE_SLICE_S", 0)
    monkeypatch.setattr("mindful.core.slot._SLICE_S", 0)


@pytest.fixture
def db() -> FakeDatabase:
    return FakeDatabase({})


def test_a_slot_is_one_process_s(db: FakeDatabase, start: Callable[[], Process]) -> None:
    one, other = start(), start()
    assert (one("free_slot", 2), other("free_slot", 2), one("take", 2)) == (1, 2, False)
    one("free", 1)
    assert other("take", 1)


def test_a_process_that_dies_leaves_no_slot_and_no_place(
    db: FakeDatabase, start: Callable[[], Process]
) -> None:
    dying, other = start(), start()
    dying("take", 1)
    dying("join")
    assert other("waiting")
    dying.kill()
    assert other("take", 1)
    assert not other("waiting")


def test_the_first_in_line_is_woken(db: FakeDatabase, start: Callable[[], Process]) -> None:
    line = [start() for _ in range(5)]
    with Turn(db):
        for process in line:
            process("join")
        assert [process("first_in_line") for process in line] == [line[1].pid] + [line[0].pid] * 4
    assert db.woken == [line[0].pid]
    line[0].kill()
    assert line[4]("first_in_line") == line[1].pid


def test_who_leaves_the_line_wakes_the_next(db: FakeDatabase, start: Callable[[], Process]) -> None:
    busy, next_ = start(), start()
    for slot in (1, 2):
        busy("take", slot)

    def sleep(seconds: float) -> None:
        next_("join")
        busy("free", 1)

    db.sleep = sleep  # type: ignore[method-assign]
    turn = Turn(db)
    with turn:
        assert db.woken == [next_.pid]


def test_who_holds_what_can_be_seen(db: FakeDatabase, start: Callable[[], Process]) -> None:
    batch, single = start(), start()
    for slot in (1, 2, 4):
        batch("take", slot)
    single("take", 3)
    seen = sorted(Locks(os.path.join(db.directory(), "mindful.slots")).others(1, 100))
    assert seen == [(1, batch.pid), (2, batch.pid), (3, single.pid), (4, batch.pid)]
    waiting = [start(), start()]
    for process in waiting:
        process("join")
    shown = list(wrapped(slot_status)(db))
    assert shown == [*seen, *((None, process.pid) for process in waiting)]


def test_a_turn_waits_for_whichever_slot_comes_free(db: FakeDatabase, start: Callable[[], Process]) -> None:
    dead, brief = start(), start()
    dead("take", 1)
    brief("take", 2)
    turn = Turn(db)
    db.sleep = lambda seconds: brief("free", 2)  # type: ignore[method-assign]
    with turn:
        assert not start()("take", 2)
    assert start()("take", 2)


def test_a_turn_does_not_overtake(db: FakeDatabase, start: Callable[[], Process]) -> None:
    first, slept = start(), []
    first("join")
    db.answers["mindful.setting_get($1)"] = lambda key: [{"value": {"model_slots": 1}.get(key, 50)}]
    turn = Turn(db)
    turn._waited = lambda: slept.append("in line") or 1  # type: ignore[method-assign, func-returns-value]
    with turn:
        assert slept == ["in line"]


def test_a_turn_that_waited_too_long_leaves_the_line(db: FakeDatabase, start: Callable[[], Process]) -> None:
    busy = start()
    busy("take", 1)
    db.answers["mindful.setting_get($1)"] = lambda key: [{"value": {"model_slots": 1}.get(key, 50)}]
    with pytest.raises(SlotsBusyError, match=r"all 1 slots .* busy for 50 ms"), Turn(db):
        pass
    assert not busy("waiting")


def test_a_wide_turn_gives_what_it_can_spare_to_who_waits(
    db: FakeDatabase, start: Callable[[], Process], hasty: None
) -> None:
    other = start()
    with Turn(db, wide=True) as turn:
        assert turn.threads == 2
        place = other("join")
        turn.check()
        assert turn.threads == 1
        assert other("free_slot", 2) == 2
        other("free", place)
        turn.check()
        assert turn.threads == 1
        other("free", 2)
        turn.check()
        assert turn.threads == 2


def test_a_turn_is_wide_as_long_as_it_is_asked_to_be(
    db: FakeDatabase, start: Callable[[], Process], hasty: None
) -> None:
    other = start()
    with Turn(db) as turn:
        assert turn.threads == 1
        with turn.wide():
            assert turn.threads == 2
            place = other("join")
            turn.check()
            assert turn.threads == 1
            other("free", place)
            turn.check()
            assert turn.threads == 2
        assert turn.threads == 1
        with pytest.raises(ZeroDivisionError), turn.wide():
            raise ZeroDivisionError
        turn.check()
        assert turn.threads == 1
        assert other("free_slot", 2) == 2
    other("free", 2)
    with Turn(db, wide=True) as turn:
        with turn.wide():
            assert turn.threads == 2
        assert turn.threads == 2


def test_a_turn_of_a_served_model_takes_no_slot_to_be_wide(
    db: FakeDatabase, start: Callable[[], Process]
) -> None:
    other = start()
    with Turn(db, served=True) as turn:
        with turn.wide():
            assert other("free_slot", 2) == 1
        other("free", 1)
        turn.compute()
        with turn.wide():
            assert turn.threads == 2
        assert turn.threads == 1


def test_a_turn_that_cannot_widen_stays_narrow(db: FakeDatabase, start: Callable[[], Process]) -> None:
    with Turn(db) as turn:
        db.answers["mindful.setting_get($1)"] = lambda key: 1 // 0  # type: ignore[assignment, return-value]
        with pytest.raises(ZeroDivisionError), turn.wide():
            pass
        assert turn.threads == 1
        assert start()("free_slot", 2) == 2


def test_an_error_within_a_turn_gives_its_slots_back(db: FakeDatabase, start: Callable[[], Process]) -> None:
    with pytest.raises(ZeroDivisionError), Turn(db, wide=True):
        raise ZeroDivisionError
    assert start()("free_slot", 2) == 1


def test_the_file_is_its_owner_s_alone(db: FakeDatabase) -> None:
    with Turn(db):
        assert stat.S_IMODE(os.stat(os.path.join(db.directory(), "mindful.slots")).st_mode) == 0o600
    with pytest.raises(LockFileError):
        Locks("/nowhere/mindful.slots")
