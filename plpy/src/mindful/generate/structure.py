"""Structured output: JSON that fits a schema, extracted from texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mindful.core.entry import sql_function
from mindful.core.errors import InvalidParameterError, NullValueError
from mindful.core.ports import Database, Message, Sampling
from mindful.generate import cache as cached
from mindful.generate.batch import answer_texts
from mindful.generate.call import BLANK, Call, check_length, tokens_of
from mindful.generate.sampling import sampling_of
from mindful.generate.schema import Schema, schema_of
from mindful.models import runtime

INSTRUCTION = "Extract the data from the text as JSON."


@sql_function
def llm_extract(
    db: Database,
    content: str | None,
    json_schema: str | None,
    instruction: str | None,
    model: str | None,
    max_tokens: int | None,
) -> str | None:
    """Extract JSON that fits a schema from a text."""
    schema, sampling = _schema_and_sampling(db, json_schema, max_tokens)
    if content is None:
        return None
    return cached.answer(db, _call_of(db, content, schema, sampling, instruction, model))


@sql_function
def llm_extract_many(
    db: Database,
    contents: Sequence[str | None] | None,
    json_schema: str | None,
    instruction: str | None,
    model: str | None,
    max_tokens: int | None,
) -> list[str | None] | None:
    """Extract JSON that fits a schema from texts in shared batches. NULL gives NULL."""
    call = call_of_content(db, json_schema, instruction, model, max_tokens)
    return None if contents is None else answer_texts(db, "content", contents, call)


def call_of_content(
    db: Database,
    json_schema: str | None,
    instruction: str | None,
    model: str | None,
    max_tokens: int | None,
) -> Callable[[int, str], Call]:
    """Return a function that makes the call of a text."""
    schema, sampling = _schema_and_sampling(db, json_schema, max_tokens)
    return lambda _, content: _call_of(db, content, schema, sampling, instruction, model)


def _schema_and_sampling(
    db: Database, json_schema: str | None, max_tokens: int | None
) -> tuple[Schema, Sampling]:
    sampling = sampling_of(max_tokens, 0.0, None)
    if json_schema is None:
        raise NullValueError("json_schema is null", "Pass a JSON schema.")
    schema = schema_of(json_schema, db.check)
    return schema, Sampling(sampling.max_tokens, grammar=schema.grammar, schema=schema.schema)


def _call_of(
    db: Database,
    content: str,
    schema: Schema,
    sampling: Sampling,
    instruction: str | None,
    model: str | None,
) -> Call:
    if not content.strip(BLANK):
        raise InvalidParameterError("content is empty", "Pass a text with at least one visible character.")
    check_length("content", content)
    spec, generator = runtime.generator(db, model)
    check_length("instruction", instruction or "")
    system = f"{INSTRUCTION if instruction is None else instruction}\nJSON schema: {schema.text}"
    tokens = tokens_of(generator, [Message("system", system), Message("user", content)])
    return Call(spec, generator, tokens, sampling, schema)
