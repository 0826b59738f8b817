"""JSON schemas for answers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from mindful.core.errors import ContextLengthError, DataError, InvalidParameterError
from mindful.core.extra import extra
from mindful.core.jsontext import loads
from mindful.core.text import seldom
from mindful.generate.sampling import parsed
from mindful.generate.schema_grammar import grammar_of

_LONGEST_SCHEMA = 1 << 16
"""Bytes."""
_MAPS = ("properties", "$defs", "definitions", "dependentSchemas", "dependentRequired")
_VALUES = ("const", "enum", "default", "examples")


class Schema:
    """A JSON schema (draft 2020-12) with local references only."""

    def __init__(self, text: str, check: Callable[[], None] = lambda: None) -> None:
        """Read a schema, and check for interrupts while its parts are read."""
        with extra("server"):  # imported here: the import takes 0.1 s
            from jsonschema import Draft202012Validator
            from jsonschema.exceptions import SchemaError
            from referencing import Registry
        if len(text.encode()) > _LONGEST_SCHEMA:
            raise ContextLengthError(
                f"json_schema has more than {_LONGEST_SCHEMA} bytes",
                "Split the extraction into several calls.",
            )
        schema = parsed("json_schema", text, functools.partial(_Part, seldom(check)))
        if not isinstance(schema, dict):
            raise InvalidParameterError(
                "json_schema is not a JSON object", 'Pass an object such as {"type": "object"}.'
            )
        try:
            Draft202012Validator.check_schema(schema)
            _check_keywords(schema)
        except SchemaError as error:
            place = "/".join(map(str, error.absolute_path))
            raise InvalidParameterError(
                f"json_schema is invalid at /{place}: {error.message[:200]}",
                "Correct it by the specification at json-schema.org (draft 2020-12).",
            ) from None
        except RecursionError:
            raise InvalidParameterError("json_schema is nested too deeply", "Use fewer levels.") from None
        self.text = text
        self._check = seldom(check)
        self.schema: dict[str, Any] = schema
        # With an empty registry the library fetches no remote schemas.
        self._validator = Draft202012Validator(schema, registry=Registry())

    @functools.cached_property
    def grammar(self) -> str:
        """The schema as a grammar."""
        return grammar_of(self.schema, self.fits, self._check)

    def fits(self, value: Any, part: Mapping[str, Any]) -> bool:
        """Return whether a value fits a part of the schema."""
        return bool(self._validator.evolve(schema=part).is_valid(value))

    def checked(self, text: str) -> str:
        """Return the text if it is JSON that fits the schema. Error 22000: it does not."""
        try:
            error = next(iter(self._validator.iter_errors(loads(text))), None)
        except ValueError:
            raise DataError("the answer is not valid JSON", "Use a larger model.") from None
        if error is not None:
            # The place in the schema replaces the message, which would quote the answer in the server's log.
            place = "/".join(map(str, error.absolute_schema_path))
            raise DataError(
                f"the answer does not fit json_schema at /{place}",
                "Only types, members, enumerations, lengths and bounds restrict the model. Simplify other conditions.",
            )
        return text


@functools.lru_cache(maxsize=16)
def schema_of(text: str, check: Callable[[], None]) -> Schema:
    """Read a schema. A cache serves queries that pass the same schema for every row."""
    return Schema(text, check)


class _Part(dict[str, Any]):
    """An object of a schema that checks for interrupts. Validation can take seconds and offers no other hook."""

    def __init__(self, check: Callable[[], None], members: Mapping[str, Any]) -> None:
        super().__init__(members)
        self._check = check

    def __contains__(self, key: object) -> bool:
        self._check()
        return super().__contains__(key)


def _check_keywords(schema: Any) -> None:
    """Refuse keywords that fetch schemas or match regular expressions, which cannot be interrupted."""
    if isinstance(schema, list):
        for part in schema:
            _check_keywords(part)
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in ("pattern", "patternProperties", "$dynamicRef", "$id"):
            raise InvalidParameterError(f"json_schema has the unsupported keyword {key}", "Remove it.")
        if key == "$ref" and not value.startswith("#"):
            raise InvalidParameterError(
                f"json_schema refers to {value}", "Use local references, such as #/$defs/name."
            )
        if key not in _VALUES:
            _check_keywords(list(value.values()) if key in _MAPS else value)
