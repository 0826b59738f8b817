"""Generators, embedders and rerankers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mindful_client.calls.statement import (
    DEFAULT,
    Call,
    Json,
    Stream,
    row,
    row_or_none,
    rows,
    scalar,
    stream,
    vector,
    vectors,
)
from mindful_client.types import ClassifierDetail, GenerationDetail, LabelDetail, Ranked


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
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
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
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
) -> Call[GenerationDetail | None]:
    """Answer a prompt, and return the answer with its cost and confidence; None gives None.

    Raises as llm_generate.
    """
    return row_or_none("llm_generate_detail", locals(), GenerationDetail)


def llm_generate_stream(
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
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
) -> Stream[str]:
    """Answer a prompt piece by piece; None gives no pieces.

    Raises as llm_generate, at the first piece.
    """
    return stream("llm_generate_stream", locals())


def llm_embed(content: str | None, *, model: str | None = DEFAULT) -> Call[list[float] | None]:
    """Embed a text as a unit vector; None gives None.

    Raises InvalidInputError (empty text), NotFoundError (no such model).
    """
    return scalar("llm_embed", locals(), "select {call}::text", vector)


def llm_embed_many(
    contents: Sequence[str | None] | None, *, model: str | None = DEFAULT
) -> Call[list[list[float] | None] | None]:
    """Embed texts in batches, in their order; None gives None. It is much faster than single calls.

    With on_error it returns an Outcome for each instead. If one fails, 'null' gives it an error, and 'raise' raises it.
    Raises as llm_embed.
    """
    return scalar("llm_embed_many", locals(), "select {call}::text[]", vectors)


def llm_token_count(content: str | None, *, model: str | None = DEFAULT) -> Call[int | None]:
    """Count the tokens of a text for a generator; None gives None.

    Raises NotFoundError (no such model).
    """
    return scalar("llm_token_count", locals())


def llm_rerank(
    query: str | None,
    contents: Sequence[str | None] | None,
    *,
    model: str | None = DEFAULT,
    limit_ms: int | None = DEFAULT,
) -> Call[list[float | None] | None]:
    """Score how well each text answers a query; higher is better. Texts not scored within limit_ms give None.

    Raises InvalidInputError, NotFoundError (no such model), NotReadyError (no default reranker).
    """
    return scalar("llm_rerank", locals())


def llm_rank(
    query: str | None, contents: Sequence[str | None] | None, *, model: str | None = DEFAULT
) -> Call[list[Ranked]]:
    """Order texts by how well they answer a query, best first, by a reranker or a generator.

    Raises InvalidInputError, NotFoundError (no such model), NotReadyError (no default generator).
    """
    return rows("llm_rank", locals(), Ranked)


def result_cache_clear() -> Call[int]:
    """Delete the tenant's kept answers (setting result_cache), and return their number."""
    return scalar("result_cache_clear", locals())


def classifier_train(name: str, query: str, *, embedder: str | None = DEFAULT) -> Call[ClassifierDetail]:
    """Train a classifier on the rows of a query, a text and a label each, and return its accuracy.

    Raises InvalidInputError (rows, labels), NotFoundError (no such model).
    """
    return row("classifier_train", locals(), ClassifierDetail)


def classifier_list() -> Call[list[ClassifierDetail]]:
    """List the tenant's classifiers."""
    return rows("classifier_list", locals(), ClassifierDetail)


def classifier_delete(name: str) -> Call[bool]:
    """Delete a classifier, and return whether it existed."""
    return scalar("classifier_delete", locals())


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
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
) -> Call[list[str | None] | None]:
    """Answer prompts in shared batches, in their order; None gives None. It is faster than single calls.

    With on_error it returns an Outcome for each instead. If one fails, 'null' gives it an error, and 'raise' raises it.
    Raises as llm_generate.
    """
    return scalar("llm_generate_many", locals())


def llm_classify(
    content: str | None,
    labels: Sequence[str] | None = DEFAULT,
    *,
    instruction: str | None = DEFAULT,
    model: str | None = DEFAULT,
    subtract_prior: bool = DEFAULT,
    descriptions: Mapping[str, str] | None = DEFAULT,
    examples: Sequence[Json] | None = DEFAULT,
    classifier: str | None = DEFAULT,
) -> Call[str | None]:
    """Choose the label that fits a text best, by a generator or a trained classifier; None gives None.

    Raises InvalidInputError (labels, text), NotFoundError (no such model or classifier).
    """
    return scalar("llm_classify", locals())


def llm_classify_many(
    contents: Sequence[str | None] | None,
    labels: Sequence[str] | None = DEFAULT,
    *,
    instruction: str | None = DEFAULT,
    model: str | None = DEFAULT,
    subtract_prior: bool = DEFAULT,
    descriptions: Mapping[str, str] | None = DEFAULT,
    examples: Sequence[Json] | None = DEFAULT,
    classifier: str | None = DEFAULT,
) -> Call[list[LabelDetail | None] | None]:
    """Classify texts in shared batches, in their order, with all probabilities; None gives None.

    With on_error it returns an Outcome for each instead. If one fails, 'null' gives it an error, and 'raise' raises it.
    Raises as llm_classify.
    """
    # As jsonb, because psycopg cannot read arrays of a composite type that is not registered.
    return scalar("llm_classify_many", locals(), "select pg_catalog.to_jsonb({call})", _details)


def llm_if(content: str | None, condition: str | None, *, model: str | None = DEFAULT) -> Call[bool | None]:
    """Return whether a statement is true of a text; None if either is None.

    Raises InvalidInputError (empty text or condition), NotFoundError (no such model).
    """
    return scalar("llm_if", locals())


def llm_if_many(
    contents: Sequence[str | None] | None, condition: str | None, *, model: str | None = DEFAULT
) -> Call[list[bool | None] | None]:
    """Return for texts, in shared batches and in their order, whether a statement is true; None gives None.

    With on_error it returns an Outcome for each instead. If one fails, 'null' gives it an error, and 'raise' raises it.
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
    """Extract JSON that fits a JSON schema from a text; None gives None.

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
    """Extract JSON that fits a JSON schema from texts in shared batches, in their order; None gives None.

    With on_error it returns an Outcome for each instead. If one fails, 'null' gives it an error, and 'raise' raises it.
    Raises as llm_extract.
    """
    return scalar("llm_extract_many", locals())


def _details(found: list[dict[str, Any] | None] | None) -> list[LabelDetail | None] | None:
    if found is None:
        return None
    return [None if detail is None else LabelDetail(**detail) for detail in found]
