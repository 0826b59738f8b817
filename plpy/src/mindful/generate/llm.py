"""The SQL functions that generate, stream, embed and count tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mindful.core.entry import sql_function
from mindful.core.errors import InvalidParameterError
from mindful.core.ports import Database, Vector
from mindful.core.text import seldom
from mindful.core.vector import to_text
from mindful.generate import cache as cached
from mindful.generate.call import BLANK, Arguments, call_of, check_length
from mindful.models import runtime

# `arguments` are the fields of Arguments. The SQL functions name them, with their defaults.


@sql_function
def llm_generate(db: Database, prompt: str | None, *arguments: Any) -> str | None:
    """Answer a prompt."""
    return None if prompt is None else cached.answer(db, call_of(db, prompt, Arguments(*arguments)))


@sql_function
def llm_generate_detail(db: Database, prompt: str | None, *arguments: Any) -> dict[str, Any] | None:
    """Answer a prompt, and return the answer with its cost and confidence."""
    if prompt is None:
        return None
    call = call_of(db, prompt, Arguments(*arguments))
    return {"text": call.answer(db), "model": call.spec.name} | call.outcome()


@sql_function
def llm_generate_stream(db: Database, prompt: str | None, *arguments: Any) -> Iterator[str]:
    """Answer a prompt piece by piece."""
    if prompt is not None:
        yield from call_of(db, prompt, Arguments(*arguments)).stream(db)


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
    """Embed texts in batches. NULL gives NULL."""
    if contents is None:
        return None
    texts = [text for text in contents if text is not None]
    vectors = iter(embedded(db, texts, model) if texts else ())
    return [None if text is None else next(vectors) for text in contents]


@sql_function
def llm_token_count(db: Database, content: str | None, model: str | None) -> int | None:
    """Count the tokens of a text."""
    if content is None:
        return None
    check_length("content", content)
    return runtime.counter(db, model).count(content)


def embedded(db: Database, texts: Sequence[str], model: str | None) -> list[str]:
    """Embed texts that are not NULL, and return the vectors in pgvector's text form."""
    return [to_text(vector) for vector in embed_texts(db, texts, model)]


def embed_texts(db: Database, texts: Sequence[str], model: str | None) -> list[Vector]:
    """Embed texts that are not NULL."""
    look = seldom(db.check)
    for text in texts:
        look()
        if not isinstance(text, str):
            raise InvalidParameterError(
                "contents has more than one dimension", "Pass a one-dimensional array."
            )
        check_length("content", text)
        if not text.strip(BLANK):
            raise InvalidParameterError(
                "content is empty", "Pass a text with at least one visible character."
            )
    return runtime.embed(db, model, texts)
