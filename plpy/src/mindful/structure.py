"""Structured output: JSON that fits a schema, drawn from texts."""

from __future__ import annotations

from collections.abc import Sequence

from mindful import runtime
from mindful.batch import answer_texts
from mindful.call import BLANK, Call, check_length, sampling_of, tokens_of
from mindful.entry import sql_function
from mindful.errors import InvalidParameterError, NullValueError
from mindful.ports import Database, Message, Sampling
from mindful.schema import Schema, schema_of

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
    """Draw JSON that fits a schema from a text."""
    schema, sampling = _held(db, json_schema, max_tokens)
    if content is None:
        return None
    return _call_of(db, content, schema, sampling, instruction, model).answer(db)


@sql_function
def llm_extract_many(
    db: Database,
    contents: Sequence[str | None] | None,
    json_schema: str | None,
    instruction: str | None,
    model: str | None,
    max_tokens: int | None,
) -> list[str | None] | None:
    """Draw JSON that fits a schema from texts, side by side; NULL for NULL."""
    schema, sampling = _held(db, json_schema, max_tokens)
    if contents is None:
        return None
    return answer_texts(
        db,
        "content",
        contents,
        lambda _, content: _call_of(db, content, schema, sampling, instruction, model),
    )


def _held(db: Database, json_schema: str | None, max_tokens: int | None) -> tuple[Schema, Sampling]:
    sampling = sampling_of(max_tokens, 0.0, None)
    if json_schema is None:
        raise NullValueError("json_schema is null", "Give a JSON schema.")
    schema = schema_of(json_schema, db.check)
    return schema, Sampling(sampling.max_tokens, grammar=schema.grammar)


def _call_of(
    db: Database,
    content: str,
    schema: Schema,
    sampling: Sampling,
    instruction: str | None,
    model: str | None,
) -> Call:
    if not content.strip(BLANK):
        raise InvalidParameterError("content is empty", "Give a text with at least one visible character.")
    check_length("content", content)
    spec, generator = runtime.generator(db, model)
    check_length("instruction", instruction or "")
    system = f"{INSTRUCTION if instruction is None else instruction}\nJSON schema: {schema.text}"
    tokens = tokens_of(generator, [Message("system", system), Message("user", content)])
    return Call(spec, generator, tokens, sampling, schema)
