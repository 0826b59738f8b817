"""The PostgreSQL backend of this interpreter. Only this module imports plpy."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import plpy
from mindful import __version__
from mindful.core.errors import AttemptError, MindfulError, NotReadyError, ParallelQueryError
from mindful.core.ports import Row

# PL/Python prefixes a message with the exception's module and class; these two make that prefix "mindful: ".
_PREFIX = "mindful"
_ReportedError = type(_PREFIX, (plpy.Error,), {"__module__": "builtins"})


def _flags(*names: str) -> list[ctypes.c_int]:
    server, found = ctypes.CDLL(None), []
    for name in names:
        with contextlib.suppress(ValueError):  # other major versions lack some of them
            found.append(ctypes.c_int.in_dll(server, name))
    return found


# InterruptPending is unsuitable: events other than cancels set it too.
_pending = _flags("QueryCancelPending", "ProcDiePending", "TransactionTimeoutPending")
_barrier = _flags("ProcSignalBarrierPending")
_interrupt = ctypes.c_int.in_dll(ctypes.CDLL(None), "InterruptPending")

# 32 random bytes of the cluster's control file. No role can read them by SQL; the server uses them to imitate password
# checks for roles that do not exist.
_server = ctypes.CDLL(None)
_server.IsInParallelMode.restype = ctypes.c_bool
_nonce = _server.GetMockAuthenticationNonce
_nonce.restype = ctypes.POINTER(ctypes.c_char * 32)

_LAST_END = 4
"""The last of the server's XactEvents for the end of a transaction. Later ones precede the end."""
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
# A separate timer, because statement_timeout may be using its own. When it fires, the server acts as at a cancel. An id
# of at least USER_TIMEOUT requests the next free id; USER_TIMEOUT is below 20 in every version.
_server.get_timeout_indicator.restype = ctypes.c_bool
_timer = _server.RegisterTimeout(20, _server.StatementCancelHandler)


_latch = ctypes.c_void_p.in_dll(_server, "MyLatch")
_WAKE = 1 << 0 | 1 << 3 | 1 << 5
"""WL_LATCH_SET, WL_TIMEOUT, WL_EXIT_ON_PM_DEATH."""
_WAIT_EXTENSION = ctypes.c_uint32(0x07000000)
"""PG_WAIT_EXTENSION: the wait event in pg_stat_activity."""


class _UndoneError(Exception):
    """Ends a successful subtransaction so that it is rolled back. It carries the rows out."""

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
    """SQL through SPI. Each statement is prepared once per session."""

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
        """Raise if a cancel, a timeout or a termination is pending. SPI checks for them."""
        if _interrupt.value:
            self.rows("select")

    def pending(self) -> bool:
        """Return whether an interrupt is pending, and take part in barriers, which other backends may wait for."""
        # Models call this hundreds of times per text. Loops take half the time of any().
        for flag in _barrier:
            if flag.value:
                _server.ProcessProcSignalBarrier()
        for flag in _pending:  # noqa: SIM110
            if flag.value:
                return True
        return False

    def commit(self) -> None:
        """Commit, and continue in a new transaction."""
        try:
            plpy.commit()
        except plpy.spiexceptions.InvalidTransactionTermination:
            raise NotReadyError(
                "a procedure that commits was called within a transaction",
                "Call it outside a transaction block, without BEGIN.",
            ) from None

    def attempt(
        self, sql: str, types: Sequence[str], arguments: Sequence[Any], undo: bool, timeout_ms: int
    ) -> list[Row]:
        """Run a statement in a subtransaction with a time limit."""
        try:
            with plpy.subtransaction():
                with _deadline(timeout_ms):
                    rows = self.rows(sql, types, arguments)
                    _disarm()
                    self.check()  # raises if the timer fired just after the statement
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
        """Consume the interrupt of the timer if the statement failed before it handled it."""
        try:
            with plpy.subtransaction():
                self.check()
        except plpy.SPIError as error:
            if error.sqlstate != _QUERY_CANCELED:
                raise

    def after_transaction(self, action: Callable[[], object]) -> None:
        """Call an action once after this transaction has ended. The action must not use the database."""
        if action not in _after_transaction:
            _after_transaction.append(action)

    def sleep(self, seconds: float) -> None:
        """Wait for the process's latch, which a signal sets. Hardened servers revoke pg_sleep."""
        _server.WaitLatch(_latch, _WAKE, ctypes.c_long(math.ceil(seconds * 1000)), _WAIT_EXTENSION)
        _server.ResetLatch(_latch)
        self.check()

    def warning(self, message: str, hint: str) -> None:
        """Send a warning to the client."""
        plpy.warning(f"{_PREFIX}: {message}", hint=hint)

    def wake(self, process: int) -> None:
        """Set another backend's latch by SIGUSR1, the signal that backends notify each other with."""
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGUSR1)

    def directory(self) -> str:
        """Return the data directory from a variable of the server. Few roles may read the setting data_directory."""
        path = ctypes.c_char_p.in_dll(_server, "DataDir").value
        assert path is not None
        return os.fsdecode(path)

    def secret(self) -> bytes:
        """Return a key derived from the cluster's random bytes."""
        import hmac  # 1 ms of a new connection, and few need it

        return hmac.digest(_nonce().contents.raw, b"mindful kv_state", "sha256")


_backend = Backend()


def refuse_parallel() -> None:
    """Raise in a parallel query, before the first statement.

    Each statement of PL/Python begins a subtransaction. In a parallel query the server refuses that by a jump through
    Python's frames, after which the interpreter crashes. Functions are PARALLEL UNSAFE for that; a user's function that
    calls them may have another label.
    """
    if _server.IsInParallelMode():
        raise ParallelQueryError(
            "models and Python cannot be used in a parallel query",
            "Label your function that calls this one PARALLEL UNSAFE, or SET max_parallel_workers_per_gather = 0.",
        )


def database(is_checked: bool = False) -> Backend:
    """Return the backend. Unless `is_checked`, raise 55000 if the extension and this package differ in version."""
    refuse_parallel()
    if is_checked:
        return _backend
    installed = _backend.one("select extversion from pg_catalog.pg_extension where extname = 'mindful'")
    if installed["extversion"] != __version__:
        raise NotReadyError(
            f"the extension has version {installed['extversion']}, the Python package {__version__}",
            "Reconnect. If the error stays, install the package in the extension's version, "
            "or run ALTER EXTENSION mindful UPDATE.",
        )
    return _backend


_HINTS = {
    "42P01": "Write the schema before a table of yours, as public.ticket: functions of mindful search only their own."
}
"""What PostgreSQL does not say of an error in a query that a caller passed."""

REPORTABLE = (MindfulError, plpy.SPIError)


def reported(error: MindfulError | plpy.SPIError) -> plpy.Error:
    """Return the error to raise instead of one, cancels included: same SQLSTATE and hint, without Python's class."""
    report: plpy.Error = _ReportedError(str(error).removeprefix(f"{_PREFIX}: "))
    report.sqlstate = error.sqlstate
    if isinstance(error, MindfulError):
        report.hint = error.hint
    else:
        _, report.detail, hint, _, _, *names = error.spidata
        report.hint = hint or _HINTS.get(error.sqlstate)
        (
            report.schema_name,
            report.table_name,
            report.column_name,
            report.datatype_name,
            report.constraint_name,
        ) = names
    return report
