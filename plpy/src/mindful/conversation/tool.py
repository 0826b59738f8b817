"""Tools: SQL functions that a chat calls for its user.

Which one is chosen by the likeness of the user's message and the tools' descriptions. Nothing that was recalled, and no
tool's result, is part of that choice: no memory can cause a call.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mindful.core.entry import writing_function
from mindful.core.errors import (
    InvalidParameterError,
    MindfulError,
    NullValueError,
    WrongObjectError,
)
from mindful.core.jsontext import loads
from mindful.core.pattern import linear
from mindful.core.ports import Database, Generator, Message, ModelSpec, Row, Sampling, Vector
from mindful.generate.call import Call, tokens_of
from mindful.generate.schema import Schema
from mindful.generate.schema_grammar import grammar_of
from mindful.models import runtime

_NAME = linear(r"[a-z][a-z0-9_]{0,62}")
_WRAP = "Write a function in SQL or PL/pgSQL that calls it, SECURITY INVOKER and without VARIADIC, and register that."
_ROWS = 20
"""Most rows of a result."""
_ARGUMENT_TOKENS = 256
_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "smallint": {"type": "integer"},
    "integer": {"type": "integer"},
    "bigint": {"type": "integer"},
    "real": {"type": "number"},
    "double precision": {"type": "number"},
    "numeric": {"type": "number"},
    "boolean": {"type": "boolean"},
    "date": {"type": "string", "format": "date"},
    "timestamp with time zone": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"},
    "jsonb": {},
    "json": {},
}
_MOST_VECTORS = 256
_vectors: dict[tuple[str, str, str, str], Vector] = {}
"""Embeddings of descriptions by tenant, and by the embedder's name and checksum: a cache of this backend."""


class ToolCall(NamedTuple):
    """A call of a tool and its outcome: ok, failed, or timeout."""

    name: str
    arguments: str | None
    result: str
    outcome: str
    sqlstate: str | None
    ms: float

    @property
    def content(self) -> str:
        """The text of the call and its result, for the session and the prompt."""
        verb = "gave" if self.outcome == "ok" else "failed:"
        return f"{self.name}({self.arguments or ''}) {verb} {self.result}"

    def turn(self) -> dict[str, Any]:
        """Store it as a message of a session."""
        metadata = {
            "tool": self.name,
            "arguments": loads(self.arguments or "null"),
            "result": self.result,
            "outcome": self.outcome,
            "sqlstate": self.sqlstate,
            "ms": round(self.ms, 3),
        }
        return {"role": "tool", "content": self.content, "metadata": metadata}


@writing_function
def tool_register(
    db: Database,
    name: str | None,
    function: str | None,
    description: str | None,
    json_schema: str | None,
    read_only: bool | None,
    scope: str | None,
) -> str:
    """Check a function and register it as a tool."""
    for argument, value in (
        ("name", name),
        ("function", function),
        ("description", description),
        ("read_only", read_only),
    ):
        if value is None:
            raise NullValueError(f"{argument} is null", f"Pass {argument}.")
    if not _NAME.fullmatch(str(name)):
        raise InvalidParameterError(
            f'name is "{name}"', "It must be of up to 63 lower-case letters, digits and underscores."
        )
    if not str(description).strip() or len(str(description)) > 1000:
        raise InvalidParameterError(
            "description is empty or longer than 1000 characters", "Describe the tool in a sentence."
        )
    if scope not in ("user", "global"):
        raise InvalidParameterError(f"scope is {scope}", "Scopes are user and global.")
    found = db.one("select * from _mindful.tool_function($1)", ("text",), (function,))
    if found["kind"] is not None:
        raise WrongObjectError(f"{function} {found['kind']}", _WRAP)
    arguments = loads(found["arguments"])
    schema = json.dumps(_schema_of(arguments)) if json_schema is None else json_schema
    _check_schema(schema, arguments, db.check)
    entered = None
    while entered is None:  # what another transaction has just entered is replaced, too
        entered = db.one(
            "select _mindful.tool_insert($1, $2, $3, $4, $5, $6) as name",
            ("text", "text", "text", "jsonb", "boolean", "text"),
            (name, function, description, schema, read_only, scope),
        )["name"]
    return str(entered)


class Toolbox:
    """The tools that a chat may call."""

    def __init__(
        self, db: Database, spec: ModelSpec, generator: Generator, settings: Mapping[str, Any]
    ) -> None:
        self._db = db
        self._spec = spec
        self._generator = generator
        self._settings = settings

    def use(self, message: str, room: int) -> list[ToolCall]:
        """Call the tools for a message. The results have at most `room` tokens in all."""
        settings = self._settings
        if settings["chat_tools"] == "off":
            return []
        chosen = self._choose(message)
        length = min(settings["tool_result_tokens"], room // max(len(chosen), 1))
        return [self._call(tool, message, settings["tool_timeout_ms"], length) for tool in chosen]

    def _choose(self, message: str) -> list[Row]:
        tools = self._db.rows(
            "select * from _mindful.tool_available($1)",
            ("boolean",),
            (self._settings["chat_tools"] == "write",),
        )
        embedder = runtime.default_embedder(self._db) if tools else None
        if embedder is None:
            return []
        tenant = self._db.one("select _mindful.tenant() as tenant")["tenant"]
        keys = [(tenant, embedder.name, embedder.sha256, _described(tool)) for tool in tools]
        known = {key: _vectors[key] for key in keys if key in _vectors}
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        wanted, *vectors = embedder.embed([message, *(text for *_, text in missing)])
        if len(_vectors) + len(missing) > _MOST_VECTORS:
            _vectors.clear()
        known.update(zip(missing, vectors, strict=True))
        _vectors.update(known)
        likeness = [sum(a * b for a, b in zip(wanted, known[key], strict=True)) for key in keys]
        best = sorted(range(len(tools)), key=lambda at: -likeness[at])[: self._settings["tool_calls"]]
        return [tools[at] for at in best if likeness[at] >= self._settings["tool_threshold"]]

    def _call(self, tool: Row, message: str, timeout_ms: int, length: int) -> ToolCall:
        started = time.perf_counter()
        arguments: str | None = None
        try:
            arguments = self._arguments(tool, message)
            given = loads(arguments)
            rows = self._db.attempt(
                "select _mindful.tool_run($1, $2, $3)::text as result",
                ("text", "jsonb", "boolean"),
                (_statement(tool, given), arguments, tool["read_only"]),
                tool["read_only"],
                timeout_ms,
            )
            result, outcome, sqlstate = str(rows[0]["result"]), "ok", None
        except MindfulError as error:
            outcome = "timeout" if error.sqlstate == "57014" else "failed"
            result, sqlstate = str(error), error.sqlstate
        ms = (time.perf_counter() - started) * 1000
        return ToolCall(
            tool["name"], arguments, self._generator.truncate(result, length), outcome, sqlstate, ms
        )

    def _arguments(self, tool: Row, message: str) -> str:
        """Extract the arguments from the message with the generator, constrained by their schema."""
        schema = Schema(tool["json_schema"], self._db.check)
        if not schema.schema.get("properties"):
            return "{}"
        system = f"Extract from the text as JSON: {tool['description']}\nJSON schema: {tool['json_schema']}"
        tokens = tokens_of(self._generator, [Message("system", system), Message("user", message)])
        grammar = grammar_of(schema.schema, schema.fits)
        call = Call(self._spec, self._generator, tokens, Sampling(_ARGUMENT_TOKENS, grammar=grammar))
        return schema.checked(call.answer(self._db))


def _described(tool: Row) -> str:
    return f"{tool['name'].replace('_', ' ')}: {tool['description']}"


def _statement(tool: Row, given: Mapping[str, Any]) -> str:
    """Return the SQL of a call: each argument by name, read from JSON as its SQL type."""
    types = {argument["name"]: argument["type"] for argument in loads(tool["arguments"])}
    columns = ", ".join(f"{_identifier(name)} {types[name]}" for name in given)
    passed = ", ".join(f"{_identifier(name)} => given.{_identifier(name)}" for name in given)
    call = f"{tool['relation']}({passed})"
    source = f"pg_catalog.jsonb_to_record($1) given ({columns}), lateral {call}" if given else call
    rows = f"select pg_catalog.to_jsonb(called) as value from {source} as called limit {_ROWS}"
    if tool["returns_set"]:
        rows = f"select coalesce(pg_catalog.jsonb_agg(r.value), '[]') from ({rows}) r"
    return rows


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _schema_of(arguments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {argument["name"]: _type_schema(argument["type"]) for argument in arguments},
        "required": [argument["name"] for argument in arguments if argument["required"]],
        "additionalProperties": False,
    }


def _type_schema(name: str) -> Mapping[str, Any]:
    if name.endswith("[]"):
        return {"type": "array", "items": _type_schema(name.removesuffix("[]"))}
    return _SCHEMAS.get(name, {"type": "string"})


def _check_schema(text: str, arguments: Sequence[Mapping[str, Any]], check: Callable[[], None]) -> None:
    """Raise an error unless every object that fits the schema can be passed to the function."""
    if unfit := [argument for argument in arguments if not argument["name"] or argument["pseudo"]]:
        raise WrongObjectError(
            f"an argument of the function has no name or the type {unfit[0]['type']}",
            "Tools have named arguments of definite types.",
        )
    schema = Schema(text, check)
    properties = set(schema.schema.get("properties", {}))
    names = {argument["name"] for argument in arguments}
    needed = {argument["name"] for argument in arguments if argument["required"]}
    if schema.schema.get("type") != "object" or not properties <= names:
        raise InvalidParameterError(
            "json_schema is not an object with the function's arguments",
            f"Its properties are {sorted(names)}.",
        )
    if schema.schema.get("additionalProperties") is not False:
        raise InvalidParameterError("json_schema allows other members", 'Add "additionalProperties": false.')
    if missing := needed - set(schema.schema.get("required", ())):
        raise InvalidParameterError(
            f"json_schema does not require {sorted(missing)}", "Arguments without a default are required."
        )
    grammar_of(schema.schema, schema.fits)
