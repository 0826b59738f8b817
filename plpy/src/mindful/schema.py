"""JSON schemas that answers are held to."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from mindful.errors import ContextLengthError, DataError, InvalidParameterError, MissingPackageError
from mindful.grammar import gbnf
from mindful.text import seldom

_LONGEST_SCHEMA = 1 << 16
"""Bytes."""
_MAPS = ("properties", "$defs", "definitions", "dependentSchemas")
_VALUES = ("const", "enum", "default", "examples")


class Schema:
    """A JSON schema (draft 2020-12) whose references are local."""

    def __init__(self, text: str, check: Callable[[], None] = lambda: None) -> None:
        """Read a schema, and look for a cancel wherever its parts are read."""
        try:
            # Imported here: it costs 0.1 s, and nothing else needs it.
            from jsonschema import Draft202012Validator
            from jsonschema.exceptions import SchemaError
            from referencing import Registry
        except ImportError as error:
            raise MissingPackageError(
                f"the package jsonschema is not installed: {error}",
                "Install pg-mindful[server] into the server's Python environment, and reconnect.",
            ) from None
        if len(text.encode()) > _LONGEST_SCHEMA:
            raise ContextLengthError(
                f"json_schema has more than {_LONGEST_SCHEMA} bytes", "Extract in several calls."
            )
        schema = json.loads(text, object_hook=functools.partial(_Part, seldom(check)))
        if not isinstance(schema, dict):
            raise InvalidParameterError(
                "json_schema is no JSON object", 'Give one, such as {"type": "object"}.'
            )
        try:
            Draft202012Validator.check_schema(schema)
            _check_keywords(schema)
        except SchemaError as error:
            place = "/".join(map(str, error.absolute_path))
            raise InvalidParameterError(
                f"json_schema is no JSON schema: at /{place}: {error.message[:200]}", "See json-schema.org."
            ) from None
        except RecursionError:
            raise InvalidParameterError("json_schema is nested too deeply", "Flatten it.") from None
        self.text = text
        self.schema: dict[str, Any] = schema
        # With a registry of its own the library fetches nothing.
        self._validator = Draft202012Validator(schema, registry=Registry())

    @functools.cached_property
    def grammar(self) -> str:
        """The schema as a grammar."""
        return gbnf(self.schema, self.fits)

    def fits(self, value: Any, part: Mapping[str, Any]) -> bool:
        """Tell whether a value fits a part of the schema."""
        return bool(self._validator.evolve(schema=part).is_valid(value))

    def checked(self, text: str) -> str:
        """Return JSON that fits the schema, or raise."""
        try:
            error = next(iter(self._validator.iter_errors(json.loads(text))), None)
        except ValueError:
            raise DataError("the answer is no JSON", "Try a larger model.") from None
        if error is not None:
            # By its place in the schema: the message would quote the answer, and the server logs errors.
            place = "/".join(map(str, error.absolute_schema_path))
            raise DataError(
                f"the answer does not fit json_schema at /{place}",
                "The model is held to types, members, enumerations, lengths and bounds; simplify other conditions.",
            )
        return text


@functools.lru_cache(maxsize=16)
def schema_of(text: str, check: Callable[[], None]) -> Schema:
    """Read a schema; one that is given again, as for every row of a table, is not read again."""
    return Schema(text, check)


class _Part(dict[str, Any]):
    """An object of a schema. The library that reads it for seconds has no other place to look for a cancel."""

    def __init__(self, check: Callable[[], None], members: Mapping[str, Any]) -> None:
        super().__init__(members)
        self._check = check

    def __contains__(self, key: object) -> bool:
        self._check()
        return super().__contains__(key)


def _check_keywords(schema: Any) -> None:
    """Refuse what would fetch something, or match regular expressions, which nothing can interrupt."""
    if isinstance(schema, list):
        for part in schema:
            _check_keywords(part)
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in ("pattern", "patternProperties", "$dynamicRef", "$id"):
            raise InvalidParameterError(
                f"json_schema has the keyword {key}, which is not supported", "Leave it out."
            )
        if key == "$ref" and not value.startswith("#"):
            raise InvalidParameterError(
                f"json_schema refers to {value}", "References must be local, such as #/$defs/name."
            )
        if key not in _VALUES:
            _check_keywords(list(value.values()) if key in _MAPS else value)
