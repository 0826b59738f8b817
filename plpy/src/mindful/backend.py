"""The PostgreSQL backend this interpreter lives in. The only module that imports plpy."""

from __future__ import annotations

import contextlib
import ctypes
import hmac
from collections.abc import Sequence
from typing import Any

import plpy
from mindful import __version__
from mindful.errors import MindfulError, NotReadyError
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

# 32 random bytes of the cluster's control file, which the server shows to nobody: it feigns password checks with them.
_nonce = ctypes.CDLL(None).GetMockAuthenticationNonce
_nonce.restype = ctypes.POINTER(ctypes.c_char * 32)


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
        """Read the server's own flags."""
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
