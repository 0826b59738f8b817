"""Slots: only so many backends of a server run a model at once, the others wait in line.

A slot is a byte of a file in the data directory, and so is a place in the line. The operating system locks them: no
SQL can name them, the kernel frees them with their process, and a release needs no SQL, which would act on a pending
cancel first.
"""

from __future__ import annotations

import fcntl
import functools
import os
import struct
import time
from collections.abc import Iterator
from types import TracebackType

from mindful.entry import sql_function
from mindful.errors import LockFileError, SlotsBusyError
from mindful.ports import Database

_SLICE_S = 0.5
"""How long a backend computes before it lets the next in line go first."""
_WIDE_SLICE_S = 0.1
"""The same for a batch, which may hold more slots than its own."""
_LOOK_S = 0.25
"""How often a waiter looks for a free slot unasked. Whoever frees one wakes the first in line, but a process that is
ended does not."""

_FILE = "mindful.slots"
_LINE = 1 << 20
"""Bytes below are slots. Those above are places in the line: one byte for each nanosecond of the machine's clock."""
_END = (1 << 63) - 1
_FLOCK = struct.Struct("hhqqi4x")


class Turn:
    """A backend's turn at computing, a context to compute within; it may be entered again and again.

    A model takes it as its Interrupts and calls `check` often: a long turn then goes back into line if another
    backend waits. A wide turn takes free slots too, a thread for each: batches gain by them.
    """

    def __init__(self, db: Database, *, wide: bool = False) -> None:
        self._db = db
        self._wide = wide
        self._locks = _locks(db.directory())
        self._slots: list[int] = []
        self._since = 0.0
        self.waited_ms = 0.0

    def __enter__(self) -> Turn:
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

    def check(self) -> None:
        """Raise if a cancel is pending; let others go first if this turn was long."""
        self._db.check()
        if self._slots and time.monotonic() - self._since > (_WIDE_SLICE_S if self._wide else _SLICE_S):
            self._share()

    def pending(self) -> bool:
        """Tell whether a cancel is pending."""
        return self._db.pending()

    @property
    def threads(self) -> int:
        """How many threads may compute."""
        return max(len(self._slots), 1)

    def _share(self) -> None:
        """Give way to the line: a slot that is one too many, or else the only one."""
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
        slot = None if self._locks.waiting() else self._locks.free_slot(self._count)
        self._slots = [self._waited() if slot is None else slot]
        self._widen()
        self._since = time.monotonic()
        self.waited_ms += (self._since - asked) * 1000

    def _waited(self) -> int:
        """Wait in line for a slot."""
        limit_ms: int = self._setting("model_slot_wait_ms")
        end = time.monotonic() + limit_ms / 1000
        place = self._locks.join()
        try:
            while (slot := self._locks.free_slot(self._count)) is None:
                left = end - time.monotonic()
                if left <= 0:
                    raise SlotsBusyError(
                        f"all {self._count} slots for running a model were busy for {limit_ms} ms",
                        "Try again; or have an administrator raise the settings model_slots or model_slot_wait_ms.",
                    )
                self._db.sleep(min(_LOOK_S, left))
        finally:
            self._locks.free(place)
            self._wake()  # more slots than one may have come free
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
        """Have the first in line look for a free slot."""
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
    """Bytes of a file that processes lock. A lock never conflicts with others of its own process."""

    def __init__(self, path: str) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LockFileError(
                f'the file of slots "{path}" cannot be opened: {error.strerror}',
                "The operating system user of the server must be able to write in the data directory.",
            ) from None

    def take(self, byte: int) -> bool:
        """Lock a byte, unless another process has."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):  # POSIX allows both
            return False
        return True

    def free(self, byte: int) -> None:
        """Unlock a byte."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)

    def free_slot(self, count: int) -> int | None:
        """Lock the first free slot."""
        return next((slot for slot in range(1, count + 1) if self.take(slot)), None)

    def join(self) -> int:
        """Lock the place behind the last in line."""
        while not self.take(place := _LINE + time.monotonic_ns()):
            pass
        return place

    def waiting(self) -> bool:
        """Tell whether another process waits."""
        return self._lock_within(_LINE, _END) is not None

    def first_in_line(self) -> int | None:
        """Return the id of the process, of the others that wait, that came first."""
        first, end = None, _END
        while found := self._lock_within(_LINE, end):
            end, _, first = found
        return first

    def others(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the bytes at first <= byte < end that other processes hold, in no order, with the process's id."""
        parts = [(first, end)]
        while parts:
            start, stop = parts.pop()
            if found := self._lock_within(start, stop):
                at, after, process = found
                yield from ((byte, process) for byte in range(max(at, start), min(after, stop)))
                parts += [(start, at), (after, stop)]

    def _lock_within(self, start: int, stop: int) -> tuple[int, int, int] | None:
        """Return a lock of another process: its first byte, the byte behind its last, and the process's id."""
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
    """List the processes that hold slots or wait for one, the first in line first."""
    for byte, pid in sorted(_locks(db.directory()).others(1, _END)):
        yield (byte if byte < _LINE else None), pid
