"""What the clients share that is neither SQL nor I/O."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

from psycopg import BaseConnection
from psycopg.pq import TransactionStatus

from mindful_client.errors import InvalidInputError, NotReadyError

M = TypeVar("M", bound=Callable[..., Any])

APPLICATION = "mindful_client"
"""Name of the client's own connections in pg_stat_activity."""

_cursor_numbers = itertools.count(1)


def cursor_name() -> str:
    """Return a name that no other cursor of this process has."""
    return f"mindful_{next(_cursor_numbers)}"


def presented(method: M, build: Callable[..., Any], returns: str) -> M:
    """Give a method the name, the documentation and the signature of the call that it runs.

    `returns` wraps the type of the call's result, as in ``Awaitable[{}]``.
    """
    signature = inspect.signature(build)
    method.__name__ = build.__name__
    method.__qualname__ = build.__name__
    method.__doc__ = build.__doc__
    result = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[this, *signature.parameters.values()],
        return_annotation=returns.format("str" if result == "Stream" else result),
    )
    return method


# A caller's transaction has the tenant after a call that it had before.
TENANT_SET = "select current_setting('mindful.tenant', true), mindful.tenant_set(%s)"
TENANT_RESTORE = "select set_config('mindful.tenant', %s, true)"


def checked_tenant(tenant: str | None) -> str | None:
    """Return the name of a tenant, or raise if a client could not act for it."""
    if tenant == "":
        raise InvalidInputError("tenant is empty", sqlstate="22023", hint="Leave it out for the role's own.")
    return tenant


def may_go_on(connection: BaseConnection[Any]) -> bool:
    """Tell whether a connection is within a transaction that has not failed."""
    return connection.info.transaction_status == TransactionStatus.INTRANS


def is_idle(connection: BaseConnection[Any]) -> bool:
    """Tell whether a connection is outside any transaction."""
    return connection.info.transaction_status == TransactionStatus.IDLE


def refuse_beside_stream() -> None:
    """Raise the error of a call on a connection whose transaction is a stream's.

    It would be undone with the stream if that is not read to its end.
    """
    raise NotReadyError(
        "an answer is still being streamed on this connection",
        sqlstate="55000",
        hint="Read it to its end, or close it (contextlib.closing, aclosing); calls beside it need a pool.",
    )
