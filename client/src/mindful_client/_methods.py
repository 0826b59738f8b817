"""Helpers of both clients without SQL calls or I/O."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

from psycopg import BaseConnection
from psycopg.pq import TransactionStatus

from mindful_client.calls.statement import DEFAULT
from mindful_client.errors import InvalidInputError, NotReadyError

M = TypeVar("M", bound=Callable[..., Any])

APPLICATION = "mindful_client"
"""Name of the client's own connections in pg_stat_activity."""

_cursor_numbers = itertools.count(1)


def cursor_name() -> str:
    """Return a cursor name that is unique in this process."""
    return f"mindful_{next(_cursor_numbers)}"


def presented(method: M, build: Callable[..., Any], returns: str) -> M:
    """Set the name, the docstring and the signature of a method to those of its call.

    `returns` wraps the type of the call's result, as in ``Awaitable[{}]``.
    """
    signature = inspect.signature(build)
    method.__name__ = build.__name__
    method.__qualname__ = build.__name__
    method.__doc__ = build.__doc__
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[this, *signature.parameters.values()],
        return_annotation=returns.format(_result(signature)),
    )
    return method


def either(many: Callable[..., Any], each: Callable[..., Any]) -> Callable[..., Any]:
    """Return a call that is `each` where on_error is given, and `many` otherwise."""

    def build(*args: Any, on_error: Any = DEFAULT, **kwargs: Any) -> Any:
        if on_error is DEFAULT:
            return many(*args, **kwargs)
        return each(*args, on_error=on_error, **kwargs)

    signature, other = inspect.signature(many), inspect.signature(each)
    optional = other.parameters["on_error"].replace(default=DEFAULT)
    build.__name__ = many.__name__
    build.__doc__ = many.__doc__
    build.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), optional],
        return_annotation=f"{_result(signature)} | {_result(other)}",
    )
    return build


def _result(signature: inspect.Signature) -> str:
    """Return the type of a call's result."""
    return str(signature.return_annotation).removeprefix("Call[").removeprefix("Stream[").removesuffix("]")


# After a call within a caller's transaction, the tenant is the one before the call.
TENANT_SET = "select current_setting('mindful.tenant', true), mindful.tenant_set(%s)"
TENANT_RESTORE = "select set_config('mindful.tenant', %s, true)"


def checked_tenant(tenant: str | None) -> str | None:
    """Return the tenant, or raise InvalidInputError if it is empty."""
    if tenant == "":
        raise InvalidInputError(
            "tenant is empty", sqlstate="22023", hint="Leave it out to work as the role itself."
        )
    return tenant


def may_go_on(connection: BaseConnection[Any]) -> bool:
    """Return whether a connection is in a transaction that has not failed."""
    return connection.info.transaction_status == TransactionStatus.INTRANS


def is_idle(connection: BaseConnection[Any]) -> bool:
    """Return whether a connection is outside any transaction."""
    return connection.info.transaction_status == TransactionStatus.IDLE


def refuse_beside_stream() -> None:
    """Raise NotReadyError for a call on a connection whose transaction belongs to a stream.

    If the stream is not read to its end, its transaction rolls back, and the call with it.
    """
    raise NotReadyError(
        "an answer is still being streamed on this connection",
        sqlstate="55000",
        hint="Read the stream to its end, or close it (contextlib.closing, aclosing). Use a pool for other calls.",
    )
