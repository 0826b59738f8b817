"""Slots limit how many backends of a server run a model at once. The others wait in a queue.

A slot is a byte of a file in the data directory, and so is a place in the queue. Backends lock bytes by the operating
system: no SQL can reach these locks, and the kernel releases them when a process ends. A release works while a cancel
is pending, which SQL does not.
"""

from __future__ import annotations

import fcntl
import functools
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from mindful.core.entry import sql_function
from mindful.core.errors import LockFileError, SlotsBusyError
from mindful.core.ports import Database

_SLICE_S = 0.5
"""Seconds that a backend computes before it lets the first of the queue go first."""
_WIDE_SLICE_S = 0.1
"""The same where it holds several slots."""
_LOOK_S = 0.25
"""Seconds between two checks of a waiting backend. A release wakes the first of the queue, but a killed process does
not."""

_FILE = "mindful.slots"
_LINE = 1 << 20
"""Bytes below it are slots. Bytes above it are places in the queue: one per nanosecond of the monotonic clock."""
_END = (1 << 63) - 1
_FLOCK = struct.Struct("hhqqi4x")


class Turn:
    """A context manager that holds a slot while a backend computes. It can be entered repeatedly.

    A model gets it as its Interrupts and calls `check` often. If another backend waits, a long turn releases its slot
    and queues again. A wide turn, for batches and long prompts, takes free slots too and uses a thread for each.
    """

    def __init__(self, db: Database, *, wide: bool = False, served: bool = False) -> None:
        """Make a turn. With served it takes no slot, because another process computes; see compute."""
        self._db = db
        self._wide = wide
        self._served = served
        self._locks = _locks(db.directory())
        self._slots: list[int] = []
        self._since = 0.0
        self.waited_ms = 0.0

    def __enter__(self) -> Turn:
        if self._served:
            self._db.check()
            return self
        try:
            self._take()
        except BaseException:
            self._release(keep=0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release(keep=0)

    def compute(self) -> None:
        """Take a slot from now on, because this process computes in the place of another one."""
        if self._served:
            self._served = False
            self._take()

    def check(self) -> None:
        """Raise if an interrupt is pending. Let others go first if this turn was long."""
        self._db.check()
        if self._slots and time.monotonic() - self._since > (
            _WIDE_SLICE_S if len(self._slots) > 1 else _SLICE_S
        ):
            self._share()

    def pending(self) -> bool:
        """Return whether an interrupt is pending."""
        return self._db.pending()

    @property
    def threads(self) -> int:
        """Return the number of threads that may compute now."""
        return max(len(self._slots), 1)

    @contextmanager
    def wide(self) -> Iterator[None]:
        """Take the free slots too, until the context ends."""
        if self._wide or not self._slots:
            yield
            return
        self._wide = True
        try:
            self._widen()
            yield
        finally:
            self._wide = False
            self._release(keep=1)

    def _share(self) -> None:
        """Release the extra slots for the queue, or the only slot, and queue again."""
        if not self._locks.waiting():
            self._widen()
        elif len(self._slots) > 1:
            self._release(keep=1)
        else:
            self._release(keep=0)
            self._take()
        self._since = time.monotonic()

    def _take(self) -> None:
        asked = time.monotonic()
        slot = None if self._locks.waiting() else self._free_slot()
        self._slots = [self._waited() if slot is None else slot]
        self._widen()
        self._since = time.monotonic()
        self.waited_ms += (self._since - asked) * 1000

    def _free_slot(self) -> int | None:
        """Lock a free slot. There always is a first one, so the setting is read only where that is taken."""
        return 1 if self._locks.take(1) else self._locks.free_slot(self._count)

    def _waited(self) -> int:
        """Wait in the queue for a slot."""
        limit_ms: int = self._setting("model_slot_wait_ms")
        end = time.monotonic() + limit_ms / 1000
        place = self._locks.join()
        try:
            while (slot := self._locks.free_slot(self._count)) is None:
                left = end - time.monotonic()
                if left <= 0:
                    raise SlotsBusyError(
                        f"all {self._count} slots for running a model were busy for {limit_ms} ms",
                        "Try again, or ask an administrator to raise the settings model_slots or model_slot_wait_ms.",
                    )
                self._db.sleep(min(_LOOK_S, left))
        finally:
            self._locks.free(place)
            self._wake()  # more than one slot may be free
        return slot

    def _widen(self) -> None:
        if self._wide and not self._locks.waiting():
            for slot in range(1, self._count + 1):
                if slot not in self._slots and self._locks.take(slot):
                    self._slots.append(slot)

    def _release(self, keep: int) -> None:
        while len(self._slots) > keep:
            self._locks.free(self._slots.pop())
            self._wake()

    def _wake(self) -> None:
        """Wake the first of the queue to look for a free slot."""
        if (process := self._locks.first_in_line()) is not None:
            self._db.wake(process)

    @functools.cached_property
    def _count(self) -> int:
        return self._setting("model_slots") or len(os.sched_getaffinity(0))

    def _setting(self, key: str) -> int:
        sql = "select (mindful.setting_get($1) #>> '{}')::pg_catalog.int4 as value"
        value: int = self._db.one(sql, ("text",), (key,))["value"]
        return value


class Locks:
    """Locks on bytes of a file. A process never conflicts with its own locks."""

    def __init__(self, path: str) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LockFileError(
                f'cannot open the slot file "{path}": {error.strerror}',
                "Let the operating system user of the server write in the data directory.",
            ) from None

    def take(self, byte: int) -> bool:
        """Lock a byte and return True, or return False if another process has locked it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):  # POSIX allows both
            return False
        return True

    def free(self, byte: int) -> None:
        """Unlock a byte."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)

    def free_slot(self, count: int) -> int | None:
        """Lock the first free slot and return its number, or None if all are taken."""
        return next((slot for slot in range(1, count + 1) if self.take(slot)), None)

    def join(self) -> int:
        """Lock a place at the end of the queue and return it."""
        while not self.take(place := _LINE + time.monotonic_ns()):
            pass
        return place

    def waiting(self) -> bool:
        """Return whether another process waits."""
        return self._lock_within(_LINE, _END) is not None

    def first_in_line(self) -> int | None:
        """Return the id of the other process that has waited longest."""
        first, end = None, _END
        while found := self._lock_within(_LINE, end):
            end, _, first = found
        return first

    def others(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the bytes at first <= byte < end that other processes hold, unordered, with the process's id."""
        parts = [(first, end)]
        while parts:
            start, stop = parts.pop()
            if found := self._lock_within(start, stop):
                at, after, process = found
                yield from ((byte, process) for byte in range(max(at, start), min(after, stop)))
                parts += [(start, at), (after, stop)]

    def _lock_within(self, start: int, stop: int) -> tuple[int, int, int] | None:
        """Return a lock of another process: its first byte, its end (exclusive), and the process's id."""
        if start >= stop:
            return None
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, stop - start, 0)
        kind, _, at, length, process = _FLOCK.unpack(fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        return None if kind == fcntl.F_UNLCK else (at, at + length, process)


@functools.cache
def _locks(directory: str) -> Locks:
    return Locks(os.path.join(directory, _FILE))


@sql_function
def slot_status(db: Database) -> Iterator[tuple[int | None, int]]:
    """Return the processes that hold slots, then those that wait, in the order of the queue."""
    for byte, pid in sorted(_locks(db.directory()).others(1, _END)):
        yield (byte if byte < _LINE else None), pid
