"""Language model functions: generate, stream, embed, count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mindful import runtime
from mindful.call import BLANK, call_of, check_length
from mindful.entry import sql_function
from mindful.errors import InvalidParameterError
from mindful.ports import Database
from mindful.slot import Turn
from mindful.vector import to_text


@sql_function
def llm_generate(
    db: Database,
    prompt: str | None,
    model: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    system_prompt: str | None,
    stop: Sequence[str] | None,
    truncate: bool | None,
    json_schema: str | None,
    grammar: str | None,
) -> str | None:
    """Answer a prompt."""
    if prompt is None:
        return None
    call = call_of(
        db, prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar
    )
    return call.answer(db)


@sql_function
def llm_generate_detail(
    db: Database,
    prompt: str | None,
    model: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    system_prompt: str | None,
    stop: Sequence[str] | None,
    truncate: bool | None,
    json_schema: str | None,
    grammar: str | None,
) -> dict[str, Any] | None:
    """Answer a prompt, and tell what it cost and how sure the model was."""
    if prompt is None:
        return None
    call = call_of(
        db, prompt, model, max_tokens, temperature, seed, system_prompt, stop, truncate, json_schema, grammar
    )
    return {"text": call.answer(db), "model": call.spec.name} | call.outcome()


@sql_function
def llm_stream(
    db: Database,
    prompt: str | None,
    model: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    system_prompt: str | None,
    stop: Sequence[str] | None,
    truncate: bool | None,
    json_schema: str | None,
    grammar: str | None,
) -> Iterator[str]:
    """Answer a prompt piece by piece."""
    if prompt is not None:
        call = call_of(
            db,
            prompt,
            model,
            max_tokens,
            temperature,
            seed,
            system_prompt,
            stop,
            truncate,
            json_schema,
            grammar,
        )
        yield from call.stream(db)


@sql_function
def llm_embed(db: Database, content: str | None, model: str | None) -> str | None:
    """Embed one text."""
    if content is None:
        return None
    return to_text(embed_texts(db, [content], model)[0])


@sql_function
def llm_embed_many(
    db: Database, contents: Sequence[str | None] | None, model: str | None
) -> list[str | None] | None:
    """Embed texts in batches; NULL for NULL."""
    if contents is None:
        return None
    texts = [text for text in contents if text is not None]
    vectors = map(to_text, embed_texts(db, texts, model) if texts else [])
    return [None if text is None else next(vectors) for text in contents]


@sql_function
def llm_token_count(db: Database, content: str | None, model: str | None) -> int | None:
    """Count the tokens of a text."""
    if content is None:
        return None
    check_length("content", content)
    return runtime.generator(db, model)[1].count(content)


def embed_texts(db: Database, texts: Sequence[str], model: str | None) -> list[Sequence[float]]:
    """Embed texts that are not NULL."""
    for text in texts:
        if not isinstance(text, str):
            raise InvalidParameterError(
                "contents has more than one dimension", "Give a one-dimensional array."
            )
        if not text.strip(BLANK):
            raise InvalidParameterError(
                "content is empty", "Give a text with at least one visible character."
            )
    embedder = runtime.embedder(db, model)[1]
    with Turn(db) as turn:
        return embedder.embed(texts, turn)
