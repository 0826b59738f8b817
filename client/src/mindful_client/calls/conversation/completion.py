"""Lists of messages."""

from __future__ import annotations

from collections.abc import Sequence

from mindful_client.calls.statement import DEFAULT, Call, Json, Stream, row_stream, rows
from mindful_client.types import Completion, CompletionPiece


def llm_complete(
    messages: Sequence[Json] | str | None,
    *,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
    logit_bias: Json | None = DEFAULT,
    stop: Sequence[str] = DEFAULT,
    seed: int | None = DEFAULT,
    n: int = DEFAULT,
    json_schema: Json | None = DEFAULT,
    grammar: str | None = DEFAULT,
    tools: Sequence[Json] | None = DEFAULT,
    tool_choice: str = DEFAULT,
    top_logprobs: int | None = DEFAULT,
) -> Call[list[Completion]]:
    """Answer a list of messages, one result a choice; no memory is read or written. None gives no result.

    Raises InvalidInputError, NotFoundError (no such model).
    """
    return rows("llm_complete", locals(), Completion, temperature="double precision")


def llm_complete_stream(
    messages: Sequence[Json] | str | None,
    *,
    model: str | None = DEFAULT,
    max_tokens: int = DEFAULT,
    temperature: float = DEFAULT,
    top_p: float = DEFAULT,
    top_k: int = DEFAULT,
    min_p: float = DEFAULT,
    presence_penalty: float = DEFAULT,
    frequency_penalty: float = DEFAULT,
    repeat_penalty: float = DEFAULT,
    logit_bias: Json | None = DEFAULT,
    stop: Sequence[str] = DEFAULT,
    seed: int | None = DEFAULT,
    n: int = DEFAULT,
    json_schema: Json | None = DEFAULT,
    grammar: str | None = DEFAULT,
    tools: Sequence[Json] | None = DEFAULT,
    tool_choice: str = DEFAULT,
    top_logprobs: int | None = DEFAULT,
) -> Stream[CompletionPiece]:
    """Answer a list of messages piece by piece; the last piece of a choice has finish_reason and usage.

    Raises as llm_complete.
    """
    return row_stream(
        "llm_complete_stream", locals(), lambda row: CompletionPiece(**row), temperature="double precision"
    )
