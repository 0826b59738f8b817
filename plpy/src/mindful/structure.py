"""Structured output: JSON that fits a schema, drawn from a text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mindful import runtime
from mindful.entry import sql_function
from mindful.errors import (
    ContextLengthError,
    DataError,
    InvalidParameterError,
    MissingPackageError,
    NullValueError,
)
from mindful.grammar import gbnf
from mindful.llm import BLANK, Call, check_fits, check_length, sampling_of
from mindful.ports import Database, Message, Sampling

INSTRUCTION = "Extract the data from the text as JSON."
_LONGEST_SCHEMA = 1 << 16
"""Bytes."""
_MAPS = ("properties", "$defs", "definitions", "dependentSchemas")
_VALUES = ("const", "enum", "default", "examples")


@sql_function
def llm_extract(
    db: Database,
    content: str | None,
    json_schema: str | None,
    instruction: str | None,
    model: str | None,
    max_tokens: int | None,
) -> str | None:
    """Draw JSON that fits a schema from a text."""
    sampling = sampling_of(max_tokens, 0.0, None)
    if json_schema is None:
        raise NullValueError("json_schema is null", "Give a JSON schema.")
    if content is None:
        return None
    if not content.strip(BLANK):
        raise InvalidParameterError("content is empty", "Give a text with at least one visible character.")
    check_length("content", content)
    schema = Schema(json_schema)
    spec, generator = runtime.generator(db, model)
    system = f"{INSTRUCTION if instruction is None else instruction}\nJSON schema: {json_schema}"
    tokens = generator.encode([Message("system", system), Message("user", content)])
    check_fits(tokens, generator)
    call = Call(
        spec, generator, tokens, Sampling(sampling.max_tokens, grammar=gbnf(schema.schema, schema.fits))
    )
    text = call.answer(db)
    if call.outcome()["finish_reason"] == "length":
        raise ContextLengthError(
            f"the answer is not complete after {call.outcome()['completion_tokens']} tokens",
            "Raise max_tokens, or bound texts and arrays in json_schema by maxLength and maxItems.",
        )
    return schema.checked(text)


class Schema:
    """A JSON schema (draft 2020-12) whose references are local."""

    def __init__(self, text: str) -> None:
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
        schema = json.loads(text)
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
        self.schema: dict[str, Any] = schema
        # With a registry of its own the library fetches nothing.
        self._validator = Draft202012Validator(schema, registry=Registry())

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
            raise DataError(
                f"the answer does not fit json_schema: {error.message[:200]}",
                "The model is held to types, members, enumerations, lengths and bounds; simplify other conditions.",
            )
        return text


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
