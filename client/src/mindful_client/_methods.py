"""Helpers of both clients without SQL calls or I/O."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import BaseConnection, ConnectionInfo
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from mindful_client.calls.statement import DEFAULT
from mindful_client.errors import InvalidInputError, NotReadyError, QueryCancelledError

M = TypeVar("M", bound=Callable[..., Any])
T = TypeVar("T")

APPLICATION = "mindful_client"
"""Name of the client's own connections in pg_stat_activity."""

LOG = logging.getLogger("mindful_client")
READS = frozenset(
    {
        "adapters_trained_on", "classifier_list", "confidence_report", "document_list", "embedding_compare", "key_list",
        "llm_classify", "llm_classify_many", "llm_complete", "llm_complete_stream", "llm_embed", "llm_embed_many",
        "llm_extract", "llm_extract_many", "llm_generate", "llm_generate_detail", "llm_generate_many",
        "llm_generate_stream", "llm_if", "llm_if_many", "llm_rank", "llm_rerank", "llm_token_count",
        "memory_export", "memory_forget_check", "memory_get", "memory_history", "memory_list", "memory_neighbors",
        "memory_recall", "replay_export", "session_context", "session_get", "session_list", "setting_get",
    }
)  # fmt: skip
"""Functions that a standby answers too. key_use counts requests, so it needs the primary."""

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


def cancelled() -> QueryCancelledError:
    """Return the error of a stream that was cancelled between two pieces."""
    return QueryCancelledError("canceling statement due to user request", sqlstate="57014")


@dataclass(frozen=True)
class Place:
    """Where a partition is, and what it receives of a call."""

    dsn: str
    route: Sequence[Any]


IS_ROUTER = "select pg_catalog.to_regprocedure('mindful.partition_find(text)') is not null"
PARTITION_FIND = "select host, port, dbname, number, map, caller from mindful.partition_find()"
PARTITION_ENTER = "select mindful_route.enter(%s, %s, %s)"
MOVES = 3
"""How often a stream looks for its partition, which may move meanwhile."""
TRY_AGAIN_S = 60.0


def partition_dsn(router: ConnectionInfo, parameters: str, host: str, port: int, dbname: str) -> str:
    """Return the connection string of a partition: the router's parameters, with others and the place."""
    given: dict[str, Any] = router.get_parameters() | {"password": router.password, "connect_timeout": "5"}
    given |= conninfo_to_dict(parameters)
    for name in ("hostaddr", "service", "target_session_attrs"):
        given.pop(name, None)
    return make_conninfo("", **given | {"host": host, "port": port, "dbname": dbname})


def is_within(target: object) -> bool:
    """Return whether a target is a connection within a transaction."""
    return isinstance(target, BaseConnection) and not is_idle(target)


def taken(items: list[T]) -> Iterator[T]:
    """Take items from a list that other threads take from too."""
    while True:
        try:
            yield items.pop()
        except IndexError:
            return
