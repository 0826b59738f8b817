"""Generators and embedders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindful_client.calls.statement import (
    DEFAULT,
    Call,
    Json,
    Stream,
    row_or_none,
    rows,
    scalar,
    stream,
    vector,
    vectors,
)
from mindful_client.types import GenerationDetail, LabelDetail


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
    json_schema: Json | None = DEFAULT,
    grammar: str | None = DEFAULT,
) -> Call[str | None]:
    """Answer a prompt; None gives None.

    Raises InvalidInputError, NotFoundError (no such model), QueryCancelledError.
    """
    return scalar("llm_generate", locals())


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
    json_schema: Json | None = DEFAULT,
    grammar: str | None = DEFAULT,
) -> Call[GenerationDetail | None]:
    """Answer a prompt, and tell what it cost and how sure the model was; None gives None.

    Raises as llm_generate.
    """
    return row_or_none("llm_generate_detail", locals(), GenerationDetail)


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
    json_schema: Json | None = DEFAULT,
    grammar: str | None = DEFAULT,
) -> Stream:
    """Answer a prompt piece by piece, as the pieces are made; None gives none.

    Raises as llm_generate, when the first piece is asked for.
    """
    return stream("llm_stream", locals())


def llm_embed(content: str | None, *, model: str | None = DEFAULT) -> Call[list[float] | None]:
    """Embed a text as a unit vector; None gives None.

    Raises InvalidInputError (empty text), NotFoundError (no such model).
    """
    return scalar("llm_embed", locals(), "select {call}::text", vector)


def llm_embed_many(
    contents: Sequence[str | None] | None, *, model: str | None = DEFAULT
) -> Call[list[list[float] | None] | None]:
    """Embed texts in batches, in their order, None for None; many times faster than one by one.

    Raises as llm_embed.
    """
    return scalar("llm_embed_many", locals(), "select {call}::text[]", vectors)


def llm_token_count(content: str | None, *, model: str | None = DEFAULT) -> Call[int | None]:
    """Count the tokens of a text for a generator; None gives None.

    Raises NotFoundError (no such model).
    """
    return scalar("llm_token_count", locals())


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
    json_schema: Json | None = DEFAULT,
    grammar: str | None = DEFAULT,
) -> Call[list[str | None] | None]:
    """Answer prompts side by side, in their order, None for None; more tokens a second than one by one.

    Raises as llm_generate.
    """
    return scalar("llm_generate_many", locals())


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
    return scalar("llm_classify", locals())


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
    return rows("llm_classify_many", locals(), LabelDetail)


def llm_if(content: str | None, condition: str | None, *, model: str | None = DEFAULT) -> Call[bool | None]:
    """Tell whether a statement is true of a text; None where either is None.

    Raises InvalidInputError (empty text or condition), NotFoundError (no such model).
    """
    return scalar("llm_if", locals())


def llm_if_many(
    contents: Sequence[str | None] | None, condition: str | None, *, model: str | None = DEFAULT
) -> Call[list[bool | None] | None]:
    """Tell for texts, in shared batches and in their order, whether a statement is true; None for None.

    Raises as llm_if.
    """
    return scalar("llm_if_many", locals())


def llm_extract(
    content: str | None,
    json_schema: Json,
    *,
    instruction: str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
) -> Call[Any]:
    """Draw JSON that fits a JSON schema from a text; None gives None.

    Raises InvalidInputError (schema, text, an answer that is not complete after max_tokens), NotFoundError.
    """
    return scalar("llm_extract", locals())


def llm_extract_many(
    contents: Sequence[str | None] | None,
    json_schema: Json,
    *,
    instruction: str | None = DEFAULT,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
) -> Call[list[Any] | None]:
    """Draw JSON that fits a JSON schema from texts side by side, in their order; None for None.

    Raises as llm_extract.
    """
    return scalar("llm_extract_many", locals())
