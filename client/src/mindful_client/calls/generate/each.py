"""Calls over many texts that return an error beside each: the methods `_many` with on_error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, LiteralString

from mindful_client.calls.statement import DEFAULT, Call, Json, outcomes, vector
from mindful_client.types import LabelDetail, Outcome

OnError = Literal["raise", "null"]

_LABELED: LiteralString = "select number, pg_catalog.to_jsonb(result), error from {call}"


def llm_generate_each(
    prompts: Sequence[str | None] | None,
    *,
    on_error: OnError,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    seed: int | None = DEFAULT,
    system_prompt: str | None = DEFAULT,
    stop: Sequence[str] = DEFAULT,
    truncate: bool = DEFAULT,
    json_schema: Json | None = DEFAULT,
    grammar: str | None = DEFAULT,
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
) -> Call[list[Outcome[str]]]:
    """Answer prompts as llm_generate_many, with the errors of each."""
    return outcomes("llm_generate_many", locals())


def llm_extract_each(
    contents: Sequence[str | None] | None,
    json_schema: Json,
    *,
    on_error: OnError,
    instruction: str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
) -> Call[list[Outcome[Any]]]:
    """Extract JSON as llm_extract_many, with the errors of each."""
    return outcomes("llm_extract_many", locals())


def llm_classify_each(
    contents: Sequence[str | None] | None,
    labels: Sequence[str] | None = None,
    *,
    on_error: OnError,
    instruction: str | None = DEFAULT,
    model: str | None = DEFAULT,
    subtract_prior: bool = DEFAULT,
    descriptions: Mapping[str, str] | None = DEFAULT,
    examples: Sequence[Json] | None = DEFAULT,
    classifier: str | None = DEFAULT,
) -> Call[list[Outcome[LabelDetail]]]:
    """Classify texts as llm_classify_many, with the errors of each."""
    # As jsonb, because psycopg cannot read a composite type that is not registered.
    return outcomes("llm_classify_many", locals(), _LABELED, _detail)


def llm_if_each(
    contents: Sequence[str | None] | None,
    condition: str | None,
    *,
    on_error: OnError,
    model: str | None = DEFAULT,
) -> Call[list[Outcome[bool]]]:
    """Return whether a statement is true of texts as llm_if_many, with the errors of each."""
    return outcomes("llm_if_many", locals())


def llm_embed_each(
    contents: Sequence[str | None] | None, *, on_error: OnError, model: str | None = DEFAULT
) -> Call[list[Outcome[list[float]]]]:
    """Embed texts as llm_embed_many, with the errors of each."""
    return outcomes("llm_embed_many", locals(), "select number, result::text, error from {call}", vector)


def _detail(found: dict[str, Any] | None) -> LabelDetail | None:
    return None if found is None else LabelDetail(**found)
