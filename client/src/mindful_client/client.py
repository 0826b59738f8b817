"""The client for ordinary code. `make client` writes this file from aio.py: change that one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast, overload

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool

from mindful_client import _methods, calls
from mindful_client._methods import Place
from mindful_client.calls.statement import Call, Stream
from mindful_client.errors import translated

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)
S_co = TypeVar("S_co", covariant=True)


def _method(
    build: Callable[P, Call[R]],
) -> Callable[Concatenate[Client, P], R]:
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return client._run(build(*args, **kwargs), client._source(build.__name__))

    return _methods.presented(method, build, "{}")


def _stream(build: Callable[P, Stream[R]]) -> Callable[Concatenate[Client, P], Generator[R, None, None]]:
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> Generator[R, None, None]:
        return client._pieces(build(*args, **kwargs), client._source(build.__name__))

    return _methods.presented(method, build, "Generator[{}, None, None]")


class _Overloaded(Protocol[P, R_co, Q, S_co]):
    """A method with the signatures of two calls; on_error, which only the second has, selects it."""

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> S_co: ...


def _overloaded(many: Callable[P, Call[R]], each: Callable[Q, Call[S]]) -> _Overloaded[P, R, Q, S]:
    return cast(_Overloaded[P, R, Q, S], _method(_methods.either(many, each)))


class Source:
    """Lends the connections of a target."""

    def __init__(self, target: str | psycopg.Connection[Any] | ConnectionPool[Any]) -> None:
        self._target = target
        self._own: psycopg.Connection[Any] | None = None
        self._opening = threading.Lock()
        self.is_pooled = isinstance(target, ConnectionPool)
        # Two threads on one connection would share a transaction.
        self.turn = nullcontext() if self.is_pooled else threading.Lock()
        self.streaming = False

    def lent(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Return a connection until the end of its context."""
        if isinstance(self._target, ConnectionPool):
            return self._target.connection()
        if isinstance(self._target, psycopg.Connection):
            return nullcontext(self._target)
        with self._opening:
            if self._own is None or self._own.closed:
                self._own = psycopg.Connection.connect(
                    self._target, autocommit=True, fallback_application_name=_methods.APPLICATION
                )
            return nullcontext(self._own)

    def close(self) -> None:
        """Close the connection that was opened."""
        if self._own is not None:
            self._own.close()
            self._own = None


class Partitions:
    """Connections to the partitions of a router, for streams: a routed stream gives all pieces at its end.

    Clients of one role may share them. `parameters` are those of libpq that differ from the router's connection, such
    as a password. `most_idle` connections a partition stay open for later streams. If a partition cannot be reached,
    streams are routed, and it is tried again after a minute.
    """

    def __init__(self, parameters: str = "", *, most_idle: int = 8) -> None:
        self._parameters = parameters
        self._most_idle = most_idle
        self._routers: dict[tuple[str, int, str], bool] = {}
        self._idle: dict[str, list[psycopg.Connection[Any]]] = {}
        self._failed: dict[str, float] = {}

    def is_router(self, connection: psycopg.Connection[Any]) -> bool:
        """Return whether a connection leads to a router."""
        info = connection.info
        key = (info.host, info.port, info.dbname)
        if key not in self._routers:
            # A transaction of its own: without autocommit, the query would begin one that stays open.
            with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
                cursor.execute(_methods.IS_ROUTER, prepare=False)
                ((self._routers[key],),) = cursor.fetchall()
        return self._routers[key]

    def find(self, router: psycopg.Connection[Any]) -> Place | None:
        """Return the place of the caller's partition, None without a tenant."""
        with router.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(_methods.PARTITION_FIND, prepare=False)
            for host, port, dbname, *route in cursor.fetchall():
                dsn = _methods.partition_dsn(router.info, self._parameters, host, port, dbname)
                return Place(dsn, route)
        return None

    @contextmanager
    def begun(self, place: Place) -> Iterator[psycopg.Connection[Any] | None]:
        """Begin a routed call on a partition, None if it cannot be reached. Error 40001: the partition was moved."""
        connection = self._connection(place.dsn)
        if connection is None:
            yield None
            return
        try:
            with connection.transaction():
                connection.execute(_methods.PARTITION_ENTER, place.route, prepare=False)
                yield connection
        finally:
            idle = self._idle.setdefault(place.dsn, [])
            if _methods.is_idle(connection) and len(idle) < self._most_idle:
                idle.append(connection)
            else:
                connection.close()

    def close(self) -> None:
        """Close all connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def _connection(self, dsn: str) -> psycopg.Connection[Any] | None:
        for connection in _methods.taken(self._idle.get(dsn, [])):
            try:
                connection.execute("", prepare=False)
            except psycopg.OperationalError:
                connection.close()
            else:
                return connection
        if self._failed.get(dsn, 0) > time.monotonic():
            return None
        try:
            return psycopg.Connection.connect(
                dsn, autocommit=True, fallback_application_name=_methods.APPLICATION
            )
        except psycopg.OperationalError as error:
            self._failed[dsn] = time.monotonic() + _methods.TRY_AGAIN_S
            _methods.LOG.warning("streams are routed, so all pieces come at their end: %s", error)
            return None


class Client:
    """Calls mindful's functions in a database. Each method is the SQL function of its name.

    The target is one of:

    - a DSN: one connection of the client's own. The first call opens it, `close` closes it.
    - your connection. Outside a transaction, each call is a transaction of its own, committed when the call returns.
      Inside one, calls are part of it, and the client never commits.
    - your pool, which gives each call a connection. Use one if several threads call at the same time.

    With a tenant, each call sets it for its transaction, as members of mindful_application do. The connection may then
    serve others, also behind a pooler. If you began the transaction, its tenant is restored after the call.

    With `reads`, a second target, calls that only read go there, such as to a standby. It may lag behind: what you have
    just written may be missing. Calls within a transaction of yours stay on its connection.

    Over a router, a stream connects to the tenant's partition (see Partitions).

    If you may not read a stream to its end, put it into contextlib.closing.

    Besides the errors it names, every method may raise NotAllowedError, NotReadyError, UnavailableError and
    QueryCancelledError. A call is one statement and never prepared. The client does not retry and runs no DDL.
    """

    def __init__(
        self,
        target: str | psycopg.Connection[Any] | ConnectionPool[Any],
        *,
        tenant: str | None = None,
        reads: str | psycopg.Connection[Any] | ConnectionPool[Any] | None = None,
        partitions: Partitions | None = None,
    ) -> None:
        self._tenant = _methods.checked_tenant(tenant)
        self._target = target
        self._main = Source(target)
        self._reads = self._main if reads is None else Source(reads)
        # A client over your connection or pool may never be closed, so it keeps none open.
        self._partitions = partitions or Partitions(most_idle=8 if isinstance(target, str) else 0)
        self._closes_partitions = partitions is None
        self._active: set[psycopg.Connection[Any]] = set()
        self._cancels = 0

    llm_generate = _method(calls.llm_generate)
    llm_generate_detail = _method(calls.llm_generate_detail)
    llm_generate_stream = _stream(calls.llm_generate_stream)
    key_create = _method(calls.key_create)
    key_list = _method(calls.key_list)
    key_revoke = _method(calls.key_revoke)
    key_use = _method(calls.key_use)
    session_continue = _method(calls.session_continue)
    llm_complete = _method(calls.llm_complete)
    llm_complete_stream = _stream(calls.llm_complete_stream)
    llm_embed = _method(calls.llm_embed)
    llm_embed_many = _overloaded(calls.llm_embed_many, calls.llm_embed_each)
    llm_token_count = _method(calls.llm_token_count)
    llm_rerank = _method(calls.llm_rerank)
    llm_rank = _method(calls.llm_rank)
    result_cache_clear = _method(calls.result_cache_clear)
    classifier_train = _method(calls.classifier_train)
    classifier_list = _method(calls.classifier_list)
    classifier_delete = _method(calls.classifier_delete)
    llm_generate_many = _overloaded(calls.llm_generate_many, calls.llm_generate_each)
    llm_classify = _method(calls.llm_classify)
    llm_classify_many = _overloaded(calls.llm_classify_many, calls.llm_classify_each)
    llm_if = _method(calls.llm_if)
    llm_if_many = _overloaded(calls.llm_if_many, calls.llm_if_each)
    llm_extract = _method(calls.llm_extract)
    llm_extract_many = _overloaded(calls.llm_extract_many, calls.llm_extract_each)
    session_start = _method(calls.session_start)
    message_insert = _method(calls.message_insert)
    message_insert_many = _method(calls.message_insert_many)
    session_get = _method(calls.session_get)
    session_list = _method(calls.session_list)
    session_delete = _method(calls.session_delete)
    session_context = _method(calls.session_context)
    session_summarize = _method(calls.session_summarize)
    llm_chat = _method(calls.llm_chat)
    llm_chat_detail = _method(calls.llm_chat_detail)
    llm_chat_stream = _stream(calls.llm_chat_stream)
    chat = _method(calls.chat)
    chat_stream = _stream(calls.chat_stream)
    memory_insert = _method(calls.memory_insert)
    memory_insert_many = _method(calls.memory_insert_many)
    memory_recall = _method(calls.memory_recall)
    memory_get = _method(calls.memory_get)
    memory_list = _method(calls.memory_list)
    memory_update = _method(calls.memory_update)
    memory_history = _method(calls.memory_history)
    memory_evidence_insert = _method(calls.memory_evidence_insert)
    memory_link_insert = _method(calls.memory_link_insert)
    memory_link_delete = _method(calls.memory_link_delete)
    memory_neighbors = _method(calls.memory_neighbors)
    memory_forget = _method(calls.memory_forget)
    memory_forget_check = _method(calls.memory_forget_check)
    memory_prune = _method(calls.memory_prune)
    retention_run = _method(calls.retention_run)
    memory_access_record = _method(calls.memory_access_record)
    memory_attach = _method(calls.memory_attach)
    memory_detach = _method(calls.memory_detach)
    memory_index_create = _method(calls.memory_index_create)
    memory_index_rebuild = _method(calls.memory_index_rebuild)
    embedding_enqueue = _method(calls.embedding_enqueue)
    embedding_compare = _method(calls.embedding_compare)
    embedding_run = _method(calls.embedding_run)
    embedding_retry = _method(calls.embedding_retry)
    embedding_replica_set = _method(calls.embedding_replica_set)
    worker_schedule = _method(calls.worker_schedule)
    document_insert = _method(calls.document_insert)
    document_insert_parts = _method(calls.document_insert_parts)
    document_delete = _method(calls.document_delete)
    document_list = _method(calls.document_list)
    memory_consolidate = _method(calls.memory_consolidate)
    memory_export = _method(calls.memory_export)
    memory_import = _method(calls.memory_import)
    consolidation_run = _method(calls.consolidation_run)
    consolidation_schedule = _method(calls.consolidation_schedule)
    replay_run = _method(calls.replay_run)
    replay_export = _method(calls.replay_export)
    replay_night = _method(calls.replay_night)
    training_configure = _method(calls.training_configure)
    training_evaluate = _method(calls.training_evaluate)
    adapter_activate = _method(calls.adapter_activate)
    adapter_rollback = _method(calls.adapter_rollback)
    adapters_trained_on = _method(calls.adapters_trained_on)
    self_review = _method(calls.self_review)
    answer_label = _method(calls.answer_label)
    gold_evaluate = _method(calls.gold_evaluate)
    calibrate = _method(calls.calibrate)
    confidence_tune = _method(calls.confidence_tune)
    confidence_report = _method(calls.confidence_report)
    tuning_run = _method(calls.tuning_run)
    tuning_schedule = _method(calls.tuning_schedule)
    action_evaluate = _method(calls.action_evaluate)
    model_register = _method(calls.model_register)
    model_unregister = _method(calls.model_unregister)
    model_fallback_set = _method(calls.model_fallback_set)
    model_serve = _method(calls.model_serve)
    adapter_register = _method(calls.adapter_register)
    adapter_share = _method(calls.adapter_share)
    setting_get = _method(calls.setting_get)
    setting_set = _method(calls.setting_set)
    setting_reset = _method(calls.setting_reset)
    setting_define = _method(calls.setting_define)
    setting_undefine = _method(calls.setting_undefine)
    setting_undo = _method(calls.setting_undo)
    tool_register = _method(calls.tool_register)
    tool_accept = _method(calls.tool_accept)
    tool_unregister = _method(calls.tool_unregister)
    model_default_set = _method(calls.model_default_set)
    model_unload = _method(calls.model_unload)
    mindful_status = _method(calls.mindful_status)
    slot_status = _method(calls.slot_status)

    def cancel(self) -> None:
        """Cancel what this client runs on the server. Call it from another thread or a signal handler.

        The calls end with QueryCancelledError. A stream that waits between two pieces raises it at the next one.
        """
        self._cancels += 1
        with translated():
            for connection in list(self._active):
                connection.cancel_safe()

    def close(self) -> None:
        """Close the client's own connections. Your connection or pool stays open."""
        self._main.close()
        self._reads.close()
        if self._closes_partitions:
            self._partitions.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _source(self, function: str) -> Source:
        """Return where a call runs."""
        if function not in _methods.READS or _methods.is_within(self._target):
            return self._main
        return self._reads

    def _run(self, call: Call[R], source: Source | None = None) -> R:
        source = source or self._main
        if call.before is not None:
            self._run(call.before)
        with (
            translated(),
            source.turn,
            self._connection(source) as connection,
            self._transaction(connection, source),
            connection.cursor(row_factory=tuple_row) as cursor,
        ):
            cursor.execute(call.query, call.parameters, prepare=False)
            return call.read(cursor.fetchall())

    def _pieces(self, call: Stream[R], source: Source) -> Generator[R, None, None]:
        cancels = self._cancels
        if call.before is not None:
            self._run(call.before)
        with translated(), ExitStack() as opened:
            with source.turn:
                connection = opened.enter_context(self._connection(source))
                direct = self._direct(source, connection, opened)
                if direct is None:
                    opened.enter_context(self._transaction(connection, source, streams=True))
            cursor = opened.enter_context(
                (direct or connection).cursor(_methods.cursor_name(), row_factory=tuple_row)
            )
            cursor.itersize = 1
            cursor.execute(call.query, call.parameters)
            for (piece,) in cursor:
                yield call.read(piece)
                if self._cancels != cancels:  # no statement ran that the server could have cancelled
                    raise _methods.cancelled()

    def _direct(
        self, source: Source, connection: psycopg.Connection[Any], opened: ExitStack
    ) -> psycopg.Connection[Any] | None:
        """Return a connection to the caller's partition, None if the connection itself serves."""
        if not _methods.is_idle(connection) or not self._partitions.is_router(connection):
            return None
        for attempt in range(_methods.MOVES):
            with self._transaction(connection, source):
                place = self._partitions.find(connection)
            if place is None:
                return None
            try:
                direct = opened.enter_context(self._partitions.begun(place))
            except psycopg.errors.SerializationFailure:  # the partition was moved meanwhile
                if attempt + 1 == _methods.MOVES:
                    raise
                continue
            if direct is not None:
                self._active.add(direct)
                opened.callback(self._active.discard, direct)
            return direct
        return None

    @contextmanager
    def _connection(self, source: Source | None = None) -> Iterator[psycopg.Connection[Any]]:
        source = source or self._main
        if source.streaming:
            _methods.refuse_beside_stream()
        with source.lent() as connection:
            self._active.add(connection)
            try:
                yield connection
            finally:
                self._active.discard(connection)

    @contextmanager
    def _transaction(
        self,
        connection: psycopg.Connection[Any],
        source: Source | None = None,
        streams: bool = False,
    ) -> Iterator[None]:
        """Begin a transaction if the call needs one of its own, as a cursor or a tenant does."""
        source = source or self._main
        begins = _methods.is_idle(connection) and (
            streams or self._tenant is not None or not connection.autocommit
        )
        if streams:
            source.streaming = not source.is_pooled and (begins or self._tenant is not None)
        try:
            with connection.transaction() if begins else nullcontext():
                before = self._set_tenant(connection)
                try:
                    yield
                finally:
                    if not begins and self._tenant is not None and _methods.may_go_on(connection):
                        connection.execute(_methods.TENANT_RESTORE, (before,), prepare=False)
        finally:
            if streams:
                source.streaming = False

    def _set_tenant(self, connection: psycopg.Connection[Any]) -> str:
        """Set the tenant until the transaction ends, and return the one before."""
        if self._tenant is None:
            return ""
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(_methods.TENANT_SET, (self._tenant,), prepare=False)
            ((before, _),) = cursor.fetchall()
        return before or ""
