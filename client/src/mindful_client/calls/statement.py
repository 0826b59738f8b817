"""A call as a value: its SQL, its parameters, and how its rows are read. Nothing here does I/O.

Each module beside this one holds the calls of a feature. A function there has the name of an SQL function, and
its arguments have theirs. Those with a default in SQL are keywords, and stay out of the statement where they
are not given: the server's defaults hold.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from types import MappingProxyType
from typing import Any, Generic, LiteralString, TypeVar
from uuid import UUID

from psycopg import sql
from psycopg.types.json import Jsonb

from mindful_client.errors import InvalidInputError
from mindful_client.types import Outcome

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
class Stream(Generic[R]):
    """A statement that gives one piece of an answer a row; read through a cursor, each comes as it is made."""

    query: sql.Composed
    parameters: Mapping[str, Any]
    read: Callable[[Any], R]
    before: Call[Any] | None = None
    """A call that is committed before this one starts."""


_TYPES: dict[str, LiteralString] = {
    "action": "text",
    "adapter": "text",
    "all_unread": "boolean",
    "as_of": "timestamptz",
    "base": "text",
    "before_id": "bigint",
    "before_session_id": "uuid",
    "budget_kind": "text",
    "change_id": "bigint",
    "choices": "text[]",
    "classifier": "text",
    "condition": "text",
    "confidence": "real",
    "confirmed_rows": "bigint",
    "content": "text",
    "contents": "text[]",
    "copies": "boolean",
    "correct": "boolean",
    "created_at": "timestamptz",
    "dataset_sha256": "text",
    "delta": "double precision",
    "depth": "integer",
    "description": "text",
    "descriptions": "jsonb",
    "direction": "text",
    "diversity": "real",
    "dry_run": "boolean",
    "embedder": "text",
    "embeddings": "boolean",
    "enabled": "boolean",
    "error": "text",
    "error_budget": "double precision",
    "everything": "boolean",
    "evidence": "jsonb",
    "examples": "jsonb",
    "expires_at": "timestamptz",
    "extractor": "text",
    "fallback": "text",
    "fanout": "integer",
    "files": "jsonb",
    "filter": "jsonb",
    "force": "boolean",
    "format": "text",
    "frequency_penalty": "double precision",
    "function": "regprocedure",
    "gold": "jsonb",
    "grammar": "text",
    "granted_to": "text[]",
    "high": "double precision",
    "id": "bigint",
    "ids": "bigint[]",
    "importance": "real",
    "initial": "jsonb",
    "instruction": "text",
    "invalid_for": "interval",
    "json_schema": "jsonb",
    "k": "integer",
    "key": "text",
    "kind": "text",
    "kinds": "text[]",
    "labels": "text[]",
    "level": "text",
    "limit_ms": "integer",
    "limits": "jsonb",
    "lines": "jsonb",
    "logit_bias": "jsonb",
    "lora": "jsonb",
    "low": "double precision",
    "max_answers": "integer",
    "max_count": "integer",
    "max_importance": "real",
    "max_jobs": "integer",
    "max_questions": "integer",
    "max_seconds": "real",
    "max_sequence_length": "integer",
    "max_tenants": "integer",
    "max_tokens": "integer",
    "max_value": "real",
    "memories": "integer",
    "memory_id": "bigint",
    "message": "text",
    "message_id": "bigint",
    "messages": "jsonb",
    "meta": "boolean",
    "metadata": "jsonb",
    "method": "text",
    "min_p": "double precision",
    "mode": "text",
    "model": "text",
    "models": "text[]",
    "n": "integer",
    "name": "text",
    "note": "text",
    "older_than": "interval",
    "on_error": "mindful.error_action",
    "options": "jsonb",
    "overlap": "integer",
    "parameters": "jsonb",
    "parts": "jsonb",
    "presence_penalty": "double precision",
    "prompt": "text",
    "prompt_format": "text",
    "prompts": "text[]",
    "provider": "text",
    "query": "text",
    "quote": "text",
    "read_only": "boolean",
    "reason": "text",
    "receipt_id": "bigint",
    "relation": "regclass",
    "relations": "text[]",
    "repeat_penalty": "double precision",
    "requests_per_minute": "integer",
    "rerank": "boolean",
    "role": "text",
    "run": "bigint",
    "scale": "real",
    "schedule": "text",
    "scope": "text",
    "scopes": "text[]",
    "seed": "integer",
    "server": "text",
    "session_id": "uuid",
    "signal_tier": "integer",
    "since": "timestamptz",
    "source": "text",
    "source_id": "bigint",
    "source_key": "text",
    "specialization": "text",
    "split": "text",
    "statements": "boolean",
    "stop": "text[]",
    "subtract_prior": "boolean",
    "system_prompt": "text",
    "target_id": "bigint",
    "temperature": "real",
    "tenant": "text",
    "title": "text",
    "tool_choice": "text",
    "tools": "jsonb",
    "top_k": "integer",
    "top_logprobs": "integer",
    "top_p": "double precision",
    "trained_on": "jsonb",
    "truncate": "boolean",
    "type": "text",
    "unused_for": "interval",
    "valid_from": "timestamptz",
    "valid_to": "timestamptz",
    "value": "jsonb",
    "weight": "real",
    "when_down": "text",
}
"""SQL types of arguments: casts make a real of a float, and a clear error of a number that is too large."""


def scalar(
    function: str,
    arguments: Mapping[str, Any],
    template: LiteralString = "select {call}",
    convert: Callable[[Any], Any] = lambda value: value,
    schema: str = "mindful",
    **types: LiteralString,
) -> Call[Any]:
    """Return the call of a function that returns one value."""
    query, parameters = _statement(template, function, arguments, types=types, schema=schema)
    return Call(query, parameters, lambda rows: convert(rows[0][0]))


def scalars(function: str, arguments: Mapping[str, Any], **types: LiteralString) -> Call[list[Any]]:
    """Return the call of a function that returns one value a row."""
    query, parameters = _statement("select {call}", function, arguments, types=types)
    return Call(query, parameters, lambda rows: [row[0] for row in rows])


def rows(
    function: str,
    arguments: Mapping[str, Any],
    row_type: type[R],
    schema: str = "mindful",
    **types: LiteralString,
) -> Call[list[R]]:
    """Return the call of a function that returns rows, of a type with their columns."""
    template: LiteralString = "select {columns} from {call}"
    query, parameters = _statement(template, function, arguments, row_type, types, schema=schema)
    return Call(query, parameters, lambda rows: [row_type(*row) for row in rows])


def row(function: str, arguments: Mapping[str, Any], row_type: type[R], schema: str = "mindful") -> Call[R]:
    """Return the call of a function that returns one row."""
    call = rows(function, arguments, row_type, schema)
    return Call(call.query, call.parameters, lambda rows: call.read(rows)[0])


def outcomes(
    function: str,
    arguments: Mapping[str, Any],
    template: LiteralString = "select number, result, error from {call}",
    convert: Callable[[Any], Any] = lambda value: value,
) -> Call[list[Outcome[Any]]]:
    """Return the call of a function that returns a result or an error for each text."""
    query, parameters = _statement(template, function, arguments)
    return Call(
        query,
        parameters,
        lambda rows: [Outcome(number, convert(result), error) for number, result, error in rows],
    )


def row_or_none(function: str, arguments: Mapping[str, Any], row_type: type[R]) -> Call[R | None]:
    """Return the call of a function that returns one row, all NULL for none."""
    call = row(function, arguments, row_type)
    return Call(
        call.query,
        call.parameters,
        lambda rows: None if all(value is None for value in rows[0]) else call.read(rows),
    )


def stream(function: str, arguments: Mapping[str, Any]) -> Stream[str]:
    """Return the call of a function that returns pieces of text."""
    # In the select list, and not in FROM, where the executor gathers all rows before it gives the first.
    return Stream(*_statement("select {call}", function, arguments), str)


def row_stream(
    function: str, arguments: Mapping[str, Any], read: Callable[[Any], R], **types: LiteralString
) -> Stream[R]:
    """Return the call of a function that returns rows one by one, each read from an object."""
    template: LiteralString = "select pg_catalog.to_jsonb({call})"
    return Stream(*_statement(template, function, arguments, types=types), read)


def _statement(
    template: LiteralString,
    function: str,
    arguments: Mapping[str, Any],
    row_type: type[Any] | None = None,
    types: Mapping[str, LiteralString] = MappingProxyType({}),
    schema: str = "mindful",
) -> tuple[sql.Composed, dict[str, Any]]:
    """Return a statement that calls a function by named arguments, and its parameters."""
    given = {name: value for name, value in arguments.items() if value is not DEFAULT}
    sql_types = {name: types.get(name, _TYPES[name]) for name in given}
    named = [
        sql.SQL("{} => {}::{}").format(sql.Identifier(name), sql.Placeholder(name), sql.SQL(sql_type))
        for name, sql_type in sql_types.items()
    ]
    query = sql.SQL(template).format(
        call=sql.SQL("{}({})").format(sql.Identifier(schema, function), sql.SQL(", ").join(named)),
        columns=sql.SQL(", ").join(sql.Identifier(field.name) for field in fields(row_type or _NoColumns)),
    )
    return query, {name: _parameter(name, value, sql_types[name]) for name, value in given.items()}


@dataclass(frozen=True)
class _NoColumns:
    pass


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


def vector(text: str | None) -> list[float] | None:
    """Read a vector from its text."""
    return None if text is None else [float(number) for number in text[1:-1].split(",")]


def vectors(texts: Sequence[str | None] | None) -> list[list[float] | None] | None:
    """Read vectors from their texts."""
    return None if texts is None else [vector(text) for text in texts]


def nothing(_: object) -> None:
    """Read a result that says nothing."""
    return
