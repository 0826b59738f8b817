"""The PostgreSQL backend this interpreter lives in. The only module that imports plpy."""

from __future__ import annotations

import contextlib
import ctypes
import hmac
import math
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import plpy
from mindful import __version__
from mindful.errors import AttemptError, MindfulError, NotReadyError
from mindful.ports import Row

# PL/Python prefixes a message with the exception's module and class; these two make that prefix "mindful: ".
_PREFIX = "mindful"
_ReportedError = type(_PREFIX, (plpy.Error,), {"__module__": "builtins"})


def _flags(*names: str) -> list[ctypes.c_int]:
    server, found = ctypes.CDLL(None), []
    for name in names:
        with contextlib.suppress(ValueError):  # a server of another major version
            found.append(ctypes.c_int.in_dll(server, name))
    return found


# Not InterruptPending, which other events set too.
_pending = _flags("QueryCancelPending", "ProcDiePending", "TransactionTimeoutPending")
_barrier = _flags("ProcSignalBarrierPending")

# 32 random bytes of the cluster's control file, which the server shows to nobody: it feigns password checks with them.
_server = ctypes.CDLL(None)
_nonce = _server.GetMockAuthenticationNonce
_nonce.restype = ctypes.POINTER(ctypes.c_char * 32)

_LAST_END = 4
"""Of the server's XactEvents, those of a transaction that is about to end follow."""
_after_transaction: list[Callable[[], object]] = []


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _transaction_event(event: int, _argument: object) -> None:
    if event <= _LAST_END and not _exiting.value:
        actions = _after_transaction[:]
        _after_transaction.clear()
        for action in actions:
            action()


_exiting = ctypes.c_bool.in_dll(ctypes.CDLL(None), "proc_exit_inprogress")
ctypes.CDLL(None).RegisterXactCallback(_transaction_event, None)


_QUERY_CANCELED = "57014"
# A timer of our own beside those of statement_timeout and the like, which may be running: when it goes off, the server
# does as at a cancel. Ids from USER_TIMEOUT on, which is lower than this in every version, mean the next free one.
_server.get_timeout_indicator.restype = ctypes.c_bool
_timer = _server.RegisterTimeout(20, _server.StatementCancelHandler)


_latch = ctypes.c_void_p.in_dll(_server, "MyLatch")
_WAKE = 1 << 0 | 1 << 3 | 1 << 5
"""WL_LATCH_SET, WL_TIMEOUT, WL_EXIT_ON_PM_DEATH."""
_WAIT_EXTENSION = ctypes.c_uint32(0x07000000)
"""PG_WAIT_EXTENSION: what pg_stat_activity shows as the wait event."""


class _UndoneError(Exception):
    """Ends a subtransaction that did what it was to do, so that it leaves nothing."""

    def __init__(self, rows: list[Row]) -> None:
        super().__init__()
        self.rows = rows


@contextlib.contextmanager
def _deadline(ms: int) -> Iterator[None]:
    _server.get_timeout_indicator(_timer, True)
    _server.enable_timeout_after(_timer, ms)
    try:
        yield
    finally:
        _disarm()


def _disarm() -> None:
    _server.disable_timeout(_timer, True)


def _fired() -> bool:
    return bool(_server.get_timeout_indicator(_timer, True))


class Backend:
    """SQL through SPI, with one prepared plan a statement for the life of the session."""

    def __init__(self) -> None:
        self._plans: dict[tuple[str, tuple[str, ...]], plpy._Plan] = {}

    def rows(self, sql: str, types: Sequence[str] = (), arguments: Sequence[Any] = ()) -> list[Row]:
        """Run one statement with arguments $1.. of the named types."""
        key = (sql, tuple(types))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = plpy.prepare(sql, list(types))
        return list(plpy.execute(plan, list(arguments)))

    def one(self, sql: str, types: Sequence[str] = (), arguments: Sequence[Any] = ()) -> Row:
        """Run a statement that yields at least one row, and return its first."""
        return self.rows(sql, types, arguments)[0]

    def check(self) -> None:
        """Let the server act on a pending cancel, time-out or termination: SPI looks for them (about 2 us)."""
        self.rows("select")

    def pending(self) -> bool:
        """Read the server's own flags; take part in a barrier, for which another backend may be waiting."""
        if any(flag.value for flag in _barrier):
            _server.ProcessProcSignalBarrier()
        return any(flag.value for flag in _pending)

    def commit(self) -> None:
        """Commit, and go on in a new transaction."""
        try:
            plpy.commit()
        except plpy.spiexceptions.InvalidTransactionTermination:
            raise NotReadyError(
                "a procedure that commits was called within a transaction",
                "Call it outside of any: no BEGIN.",
            ) from None

    def attempt(
        self, sql: str, types: Sequence[str], arguments: Sequence[Any], undo: bool, timeout_ms: int
    ) -> list[Row]:
        """Run a statement in a subtransaction, within a time."""
        try:
            with plpy.subtransaction():
                with _deadline(timeout_ms):
                    rows = self.rows(sql, types, arguments)
                    _disarm()
                    self.check()  # a time-out that came too late for the statement is heard here
                if undo:
                    raise _UndoneError(rows)
                return rows
        except _UndoneError as undone:
            return undone.rows
        except plpy.SPIError as error:
            fired, cancelled = _fired(), error.sqlstate == _QUERY_CANCELED
            if cancelled and not fired:
                raise
            if fired and not cancelled:
                self._absorb()
            raise AttemptError(str(error), error.sqlstate) from None

    def _absorb(self) -> None:
        """Hear a time-out of our own timer, which a statement did not live to hear."""
        try:
            with plpy.subtransaction():
                self.check()
        except plpy.SPIError as error:
            if error.sqlstate != _QUERY_CANCELED:
                raise

    def after_transaction(self, action: Callable[[], object]) -> None:
        """Have something done once, when this transaction has ended; it must not use the database."""
        if action not in _after_transaction:
            _after_transaction.append(action)

    def sleep(self, seconds: float) -> None:
        """Wait for the process's latch, which a signal sets. Not by pg_sleep, which hardened servers revoke."""
        _server.WaitLatch(_latch, _WAKE, ctypes.c_long(math.ceil(seconds * 1000)), _WAIT_EXTENSION)
        _server.ResetLatch(_latch)
        self.check()

    def wake(self, process: int) -> None:
        """Send the signal by which backends notify each other: it sets the latch."""
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGUSR1)

    def directory(self) -> str:
        """Read the server's own variable: the setting data_directory is shown to few roles."""
        path = ctypes.c_char_p.in_dll(_server, "DataDir").value
        assert path is not None
        return os.fsdecode(path)

    def secret(self) -> bytes:
        """Derive a key from the cluster's own random bytes."""
        return hmac.digest(_nonce().contents.raw, b"mindful kv_state", "sha256")


_backend = Backend()


def database() -> Backend:
    """Return the backend, once the extension's SQL is known to be of this package's version."""
    installed = _backend.one("select extversion from pg_catalog.pg_extension where extname = 'mindful'")
    if installed["extversion"] != __version__:
        raise NotReadyError(
            f"the extension is {installed['extversion']}, this connection's Python package is {__version__}",
            "Reconnect. If that does not help, install the package of the extension's version, "
            "or run ALTER EXTENSION mindful UPDATE.",
        )
    return _backend


REPORTABLE = (MindfulError, plpy.SPIError)


def reported(error: MindfulError | plpy.SPIError) -> plpy.Error:
    """Return what to raise in an error's place, a cancel included: SQLSTATE and hint stay, Python's class goes."""
    report: plpy.Error = _ReportedError(str(error).removeprefix(f"{_PREFIX}: "))
    report.sqlstate = error.sqlstate
    if isinstance(error, MindfulError):
        report.hint = error.hint
    else:
        _, report.detail, report.hint, _, _, *names = error.spidata
        (
            report.schema_name,
            report.table_name,
            report.column_name,
            report.datatype_name,
            report.constraint_name,
        ) = names
    return report
