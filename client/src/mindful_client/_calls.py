"""Every call as a value: its SQL, its parameters, and how its rows are read. Nothing here does I/O.

A function here has the name of an SQL function, and its arguments have theirs. Those with a default in SQL
are keywords, and stay out of the statement where they are not given: the server's defaults hold.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from types import MappingProxyType
from typing import Any, Generic, LiteralString, TypeVar
from uuid import UUID

from psycopg import sql
from psycopg.types.json import Jsonb

from mindful_client.errors import InvalidInputError
from mindful_client.types import (
    ChatDetail,
    ContextPart,
    GenerationDetail,
    LabelDetail,
    RecalledMemory,
    ReviewDetail,
    StatusDetail,
)

R = TypeVar("R")
Rows = Sequence[Sequence[Any]]
Json = Mapping[str, Any]


class _Default:
    """Stands for an argument that is not given: its default is the server's."""

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Any = _Default()


@dataclass(frozen=True)
class Call(Generic[R]):
    """A statement whose rows are read when all have come."""

    query: sql.Composed
    parameters: Mapping[str, Any]
    read: Callable[[Rows], R]
    before: Call[Any] | None = None
    """A call that is committed before this one starts."""


@dataclass(frozen=True)
class Stream:
    """A statement that gives one piece of text a row; read through a cursor, each comes as it is made."""

    query: sql.Composed
    parameters: Mapping[str, Any]
    before: Call[Any] | None = None
    """A call that is committed before this one starts."""


# Generators


def llm_generate(
    prompt: str | None,
    *,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    system_prompt: str | None = DEFAULT,
    stop: Sequence[str] = DEFAULT,
    truncate: bool = DEFAULT,
) -> Call[str | None]:
    """Answer a prompt; None gives None.

    Raises InvalidInputError, NotFoundError (no such model), QueryCancelledError.
    """
    return _value("llm_generate", locals())


def llm_generate_detail(
    prompt: str | None,
    *,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    system_prompt: str | None = DEFAULT,
    stop: Sequence[str] = DEFAULT,
    truncate: bool = DEFAULT,
) -> Call[GenerationDetail | None]:
    """Answer a prompt, and tell what it cost and how sure the model was; None gives None.

    Raises as llm_generate.
    """
    return _row_or_none("llm_generate_detail", locals(), GenerationDetail)


def llm_stream(
    prompt: str | None,
    *,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    system_prompt: str | None = DEFAULT,
    stop: Sequence[str] = DEFAULT,
    truncate: bool = DEFAULT,
) -> Stream:
    """Answer a prompt piece by piece, as the pieces are made; None gives none.

    Raises as llm_generate, when the first piece is asked for.
    """
    return _stream("llm_stream", locals())


def llm_embed(content: str | None, *, model: str | None = DEFAULT) -> Call[list[float] | None]:
    """Embed a text as a unit vector; None gives None.

    Raises InvalidInputError (empty text), NotFoundError (no such model).
    """
    return _value("llm_embed", locals(), "select {call}::text", _vector)


def llm_embed_many(
    contents: Sequence[str | None] | None, *, model: str | None = DEFAULT
) -> Call[list[list[float] | None] | None]:
    """Embed texts in batches, in their order, None for None; many times faster than one by one.

    Raises as llm_embed.
    """
    return _value("llm_embed_many", locals(), "select {call}::text[]", _vectors)


def llm_token_count(content: str | None, *, model: str | None = DEFAULT) -> Call[int | None]:
    """Count the tokens of a text for a generator; None gives None.

    Raises NotFoundError (no such model).
    """
    return _value("llm_token_count", locals())


def llm_generate_many(
    prompts: Sequence[str | None] | None,
    *,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    system_prompt: str | None = DEFAULT,
    stop: Sequence[str] = DEFAULT,
    truncate: bool = DEFAULT,
) -> Call[list[str | None] | None]:
    """Answer prompts side by side, in their order, None for None; more tokens a second than one by one.

    Raises as llm_generate.
    """
    return _value("llm_generate_many", locals())


def llm_classify(
    content: str | None,
    labels: Sequence[str],
    *,
    instruction: str | None = DEFAULT,
    model: str | None = DEFAULT,
    subtract_prior: bool = DEFAULT,
) -> Call[str | None]:
    """Choose the label that fits a text best; None gives None.

    Raises InvalidInputError (labels, text), NotFoundError (no such model).
    """
    return _value("llm_classify", locals())


def llm_classify_many(
    contents: Sequence[str | None] | None,
    labels: Sequence[str],
    *,
    instruction: str | None = DEFAULT,
    model: str | None = DEFAULT,
    subtract_prior: bool = DEFAULT,
) -> Call[list[LabelDetail]]:
    """Choose labels for texts in shared batches, in their order, with the probabilities of all labels.

    Raises as llm_classify.
    """
    return _rows("llm_classify_many", locals(), LabelDetail)


def llm_if(content: str | None, condition: str | None, *, model: str | None = DEFAULT) -> Call[bool | None]:
    """Tell whether a statement is true of a text; None where either is None.

    Raises InvalidInputError (empty text or condition), NotFoundError (no such model).
    """
    return _value("llm_if", locals())


# Conversations


def session_start(
    *, title: str | None = DEFAULT, system_prompt: str | None = DEFAULT, metadata: Json | None = DEFAULT
) -> Call[UUID]:
    """Start a conversation and return its id."""
    return _value("session_start", locals())


def message_insert(
    session_id: UUID | str,
    role: str,
    content: str,
    *,
    metadata: Json | None = DEFAULT,
    created_at: date | None = DEFAULT,
) -> Call[int]:
    """Append a message to a session and return its id. Roles: system, user, assistant, tool.

    Raises InvalidInputError, NotFoundError (no such session of yours).
    """
    return _value("message_insert", locals())


def message_insert_many(session_id: UUID | str, messages: Sequence[Json]) -> Call[list[int]]:
    """Append messages in order, all or none, and return their ids.

    Each has role, content and, if wanted, metadata and created_at.

    Raises as message_insert, naming the element.
    """
    return _values("message_insert_many", locals())


def session_context(
    session_id: UUID | str,
    *,
    query: str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    memories: int = DEFAULT,
) -> Call[list[ContextPart]]:
    """Tell what the model would be shown for a message, or for the session's last one, part by part.

    Raises InvalidInputError, NotFoundError, NotReadyError (no query, and no message waits for an answer).
    """
    return _rows("session_context", locals(), ContextPart)


def llm_chat(
    message: str | None,
    *,
    session_id: UUID | str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
) -> Call[str]:
    """Answer a message and store both turns, in one transaction; without a session, in a new one.

    message None answers the session's last message. `chat` keeps the message even where no answer comes.
    Raises InvalidInputError, NotFoundError, NotReadyError (no message waits), QueryCancelledError.
    """
    return _value("llm_chat", locals())


def llm_chat_detail(
    message: str | None,
    *,
    session_id: UUID | str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
) -> Call[ChatDetail]:
    """Do as llm_chat, and tell where the reply is, what it rests on, what it cost and how sure the model was.

    Raises as llm_chat.
    """
    return _row("llm_chat_detail", locals(), ChatDetail)


def llm_chat_stream(
    message: str | None,
    *,
    session_id: UUID | str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
) -> Stream:
    """Do as llm_chat, piece by piece, as the pieces are made; both turns are stored after the last.

    Raises as llm_chat, when the first piece is asked for.
    """
    return _stream("llm_chat_stream", locals())


def chat(
    session_id: UUID | str,
    message: str,
    *,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
) -> Call[ChatDetail]:
    """Commit a message, then answer it: whatever becomes of the answer, the message is kept.

    Two statements: message_insert, then llm_chat_detail(None, session_id=...), which also asks again after a
    failure. Within a transaction of the caller's nothing is committed: its rollback takes the message too.
    Raises as llm_chat.
    """
    answer = llm_chat_detail(
        None,
        session_id=session_id,
        model=model,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        memories=memories,
    )
    return replace(answer, before=message_insert(session_id, "user", message))


def chat_stream(
    session_id: UUID | str,
    message: str,
    *,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    memories: int = DEFAULT,
) -> Stream:
    """Do as chat, piece by piece: the message is committed when the first piece is asked for.

    llm_chat_stream(None, session_id=...) asks again after a failure. Raises as llm_chat.
    """
    answer = llm_chat_stream(
        None,
        session_id=session_id,
        model=model,
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        memories=memories,
    )
    return replace(answer, before=message_insert(session_id, "user", message))


# Memories


def memory_insert(
    content: str,
    *,
    kind: str = DEFAULT,
    metadata: Json | None = DEFAULT,
    source: str | None = DEFAULT,
    source_key: str | None = DEFAULT,
) -> Call[int]:
    """Remember a text and return its id. Kinds: fact, document, summary, reflection.

    Raises InvalidInputError, AlreadyExistsError (source and source_key taken).
    """
    return _value("memory_insert", locals())


def memory_insert_many(memories: Sequence[Json]) -> Call[list[int]]:
    """Remember objects with the fields of memory_insert, in batches; return their ids in order. All or none.

    Raises as memory_insert, naming the element.
    """
    return _values("memory_insert_many", locals(), memories="jsonb")


def memory_recall(
    query: str, *, k: int = DEFAULT, kinds: Sequence[str] | None = DEFAULT
) -> Call[list[RecalledMemory]]:
    """Return the k memories that best match a query, best first.

    Raises InvalidInputError (empty query, k outside 1 to 1000).
    """
    return _rows("memory_recall", locals(), RecalledMemory)


def memory_attach(relation: str, content: str, *, mode: str = DEFAULT) -> Call[int]:
    """Remember the rows of a table, those it has and those to come; return how many it has.

    The content is an SQL expression over its columns.

    Raises NotFoundError, NotAllowedError, AlreadyExistsError (attached already), InvalidInputError.
    """
    return _value("memory_attach", locals())


def memory_detach(relation: str) -> Call[int]:
    """Undo memory_attach, and return how many memories were forgotten.

    Raises NotFoundError (not attached).
    """
    return _value("memory_detach", locals())


def memory_index_create(tenant: str, *, model: str | None = DEFAULT) -> Call[str]:
    """Make an HNSW index on one tenant's embeddings, and return its name; for administrators.

    Raises NotFoundError (no such embedder), AlreadyExistsError.
    """
    return _value("memory_index_create", locals())


# Metacognition and administration


def self_review(message_id: int, *, model: str | None = DEFAULT) -> Call[ReviewDetail]:
    """Have a generator look again at an answer of the assistant, and store the result.

    Raises NotFoundError (no such answer of yours), InvalidInputError.
    """
    return _row("self_review", locals(), ReviewDetail)


def model_register(
    name: str,
    kind: str,
    provider: str,
    source: str,
    *,
    options: Json = DEFAULT,
    granted_to: Sequence[str] = DEFAULT,
) -> Call[str]:
    """Check a model's files, which lie on the server, and enter it in the registry. For administrators.

    Raises InvalidInputError, AlreadyExistsError, NotFoundError (no such file), NotReadyError (the provider's
    package is not installed).
    """
    return _value("model_register", locals())


def setting_get(key: str, *, session_id: UUID | str | None = DEFAULT) -> Call[Any]:
    """Return the value of a setting that is in force for the caller, or None where there is no such setting."""
    return _value("setting_get", locals())


def setting_set(
    key: str,
    value: Any,
    *,
    scope: str = DEFAULT,
    session_id: UUID | str | None = DEFAULT,
    reason: str | None = DEFAULT,
) -> Call[Any]:
    """Set a value for all (scope global), for the caller (user) or for a session; return what is now in force.

    None takes the scope's setting back.

    Raises NotFoundError (no such setting), InvalidInputError (type, range, scope), NotAllowedError.
    """
    return _value("setting_set", locals())


def model_default_set(name: str) -> Call[None]:
    """Make a model the default of its kind. For administrators.

    Raises NotFoundError.
    """
    return _value("model_default_set", locals(), convert=_nothing)


def model_unload(*, name: str | None = DEFAULT) -> Call[int]:
    """Give back the memory of a model that the connection has loaded, or of all; return how many."""
    return _value("model_unload", locals())


def mindful_status() -> Call[StatusDetail]:
    """Tell versions, whose memories the caller sees, and what the connection holds in memory."""
    return _row("mindful_status", locals(), StatusDetail)


# Statements

_TYPES: dict[str, LiteralString] = {
    "content": "text",
    "contents": "text[]",
    "created_at": "timestamptz",
    "granted_to": "text[]",
    "k": "integer",
    "prompts": "text[]",
    "labels": "text[]",
    "instruction": "text",
    "subtract_prior": "boolean",
    "condition": "text",
    "key": "text",
    "value": "jsonb",
    "scope": "text",
    "reason": "text",
    "tenant": "text",
    "kind": "text",
    "kinds": "text[]",
    "max_tokens": "integer",
    "memories": "integer",
    "message": "text",
    "message_id": "bigint",
    "messages": "jsonb",
    "metadata": "jsonb",
    "mode": "text",
    "model": "text",
    "name": "text",
    "options": "jsonb",
    "prompt": "text",
    "provider": "text",
    "query": "text",
    "relation": "regclass",
    "role": "text",
    "seed": "integer",
    "session_id": "uuid",
    "source": "text",
    "source_key": "text",
    "stop": "text[]",
    "system_prompt": "text",
    "temperature": "real",
    "title": "text",
    "truncate": "boolean",
}
"""SQL types of arguments: casts make a real of a float, and a clear error of a number that is too large."""


def _value(
    function: str,
    arguments: Mapping[str, Any],
    template: LiteralString = "select {call}",
    convert: Callable[[Any], Any] = lambda value: value,
) -> Call[Any]:
    query, parameters = _statement(template, function, arguments)
    return Call(query, parameters, lambda rows: convert(rows[0][0]))


def _values(function: str, arguments: Mapping[str, Any], **types: LiteralString) -> Call[list[Any]]:
    query, parameters = _statement("select {call}", function, arguments, types=types)
    return Call(query, parameters, lambda rows: [row[0] for row in rows])


def _rows(function: str, arguments: Mapping[str, Any], row_type: type[R]) -> Call[list[R]]:
    query, parameters = _statement("select {columns} from {call}", function, arguments, row_type)
    return Call(query, parameters, lambda rows: [row_type(*row) for row in rows])


def _row(function: str, arguments: Mapping[str, Any], row_type: type[R]) -> Call[R]:
    call = _rows(function, arguments, row_type)
    return Call(call.query, call.parameters, lambda rows: call.read(rows)[0])


def _row_or_none(function: str, arguments: Mapping[str, Any], row_type: type[R]) -> Call[R | None]:
    call = _row(function, arguments, row_type)
    return Call(
        call.query,
        call.parameters,
        lambda rows: None if all(value is None for value in rows[0]) else call.read(rows),
    )


def _stream(function: str, arguments: Mapping[str, Any]) -> Stream:
    # In the select list, and not in FROM, where the executor gathers all rows before it gives the first.
    return Stream(*_statement("select {call}", function, arguments))


def _statement(
    template: LiteralString,
    function: str,
    arguments: Mapping[str, Any],
    row_type: type[Any] | None = None,
    types: Mapping[str, LiteralString] = MappingProxyType({}),
) -> tuple[sql.Composed, dict[str, Any]]:
    """Return a statement that calls a function of mindful by named arguments, and its parameters."""
    given = {name: value for name, value in arguments.items() if value is not DEFAULT}
    sql_types = {name: types.get(name, _TYPES[name]) for name in given}
    named = [
        sql.SQL("{} => {}::{}").format(sql.Identifier(name), sql.Placeholder(name), sql.SQL(sql_type))
        for name, sql_type in sql_types.items()
    ]
    query = sql.SQL(template).format(
        call=sql.SQL("{}({})").format(sql.Identifier("mindful", function), sql.SQL(", ").join(named)),
        columns=sql.SQL(", ").join(sql.Identifier(field.name) for field in fields(row_type or _NoColumns)),
    )
    return query, {name: _parameter(name, value, sql_types[name]) for name, value in given.items()}


@dataclass(frozen=True)
class _NoColumns:
    pass


# Values


def _parameter(name: str, value: Any, sql_type: str) -> Any:
    """Return a value as psycopg is to send it, or raise InvalidInputError."""
    _check_texts(name, value)
    if value is None:
        return None
    if sql_type == "jsonb":
        return Jsonb(value, dumps=_dumps)
    if sql_type.endswith("[]"):
        if isinstance(value, str):  # which is a sequence too, of its letters
            raise InvalidInputError(f"{name} is one text", sqlstate="22023", hint="Give a list of texts.")
        return list(value)
    return value


def _check_texts(name: str, value: Any) -> None:
    if isinstance(value, str):
        _check_text(name, value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_texts(name, key)
            _check_texts(name, item)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            _check_texts(name, item)


def _check_text(name: str, text: str) -> None:
    """Refuse what has no place in a PostgreSQL text."""
    position = text.find("\0")
    if position >= 0:
        raise InvalidInputError(
            f"{name} contains NUL at character {position + 1}",
            sqlstate="22021",
            hint="PostgreSQL cannot store it: is this really text?",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{name} contains a lone surrogate at character {error.start + 1}",
            sqlstate="22021",
            hint="It was read from bytes that are not UTF-8.",
        ) from error


def json_default(value: Any) -> str:
    """Return a date, a time or a UUID as JSON holds it: as a text."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in JSON")


_dumps = functools.partial(json.dumps, default=json_default, ensure_ascii=False)


def _vector(text: str | None) -> list[float] | None:
    return None if text is None else [float(number) for number in text[1:-1].split(",")]


def _vectors(texts: Sequence[str | None] | None) -> list[list[float] | None] | None:
    return None if texts is None else [_vector(text) for text in texts]


def _nothing(_: object) -> None:
    return None
