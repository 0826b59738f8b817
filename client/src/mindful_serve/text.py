"""POST /v1/completions: plain texts are continued without a chat template."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from mindful_client.types import Completion, CompletionPiece
from starlette.responses import JSONResponse, Response

from mindful_serve.chunks import MEMORY, usage_of
from mindful_serve.errors import ApiError
from mindful_serve.exchange import Exchange, data
from mindful_serve.requests import TextRequest

_DEFAULT_TOKENS = 16
"""OpenAI's own default of this endpoint."""


async def complete(exchange: Exchange, body: TextRequest) -> Response:
    """Continue a text."""
    exchange.require("chat")
    if body.model.startswith(MEMORY):
        raise ApiError(400, "models that remember answer messages: use /v1/chat/completions", param="model")
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if len(prompts) != 1:
        raise ApiError(400, "prompt must be one text", code="unsupported_parameter", param="prompt")
    arguments = body.sampling() | {"model": exchange.settings.model(body.model)}
    if body.max_tokens is None:
        arguments["max_tokens"] = _DEFAULT_TOKENS
    if body.logprobs is not None:
        arguments["top_logprobs"] = body.logprobs
    client = exchange.database.client(exchange.caller.tenant)
    if body.stream:
        return await exchange.stream(
            lambda: client.llm_complete_stream(prompts[0], **arguments), _Chunks(exchange, body).events
        )
    rows = await exchange.whole(client.llm_complete(prompts[0], **arguments))
    usage = usage_of([vars(row) for row in rows])
    exchange.note(usage=usage)
    return JSONResponse(_head(body) | {"choices": [_choice(row) for row in rows], "usage": usage})


class _Chunks:
    """The events of a streamed text."""

    def __init__(self, exchange: Exchange, body: TextRequest) -> None:
        self._exchange = exchange
        self._body = body

    async def events(self, pieces: AsyncIterator[CompletionPiece]) -> AsyncIterator[dict[str, str]]:
        """Yield a chunk for each piece, the usage if it is asked for, and the end."""
        head, usages = _head(self._body), []
        async for piece in pieces:
            if piece.usage is not None:
                usages.append(piece.usage)
            yield data(head | {"choices": [_part(piece)]})
        usage = usage_of(usages)
        self._exchange.note(usage=usage)
        if self._body.stream_options is not None and self._body.stream_options.include_usage:
            yield data(head | {"choices": [], "usage": usage})
        if self._exchange.settings.sends_done:
            yield {"data": "[DONE]"}


def _head(body: TextRequest) -> dict[str, Any]:
    own = f"cmpl-{uuid.uuid4().hex}"
    return {"id": own, "object": "text_completion", "created": int(time.time()), "model": body.model}


def _part(piece: CompletionPiece) -> dict[str, Any]:
    logprobs = None
    if piece.token is not None:
        likeliest = {one["token"]: one["logprob"] for one in piece.alternatives or ()}
        logprobs = {
            "tokens": [piece.token],
            "token_logprobs": [piece.logprob],
            "top_logprobs": [likeliest],
            "text_offset": [0],
        }
    return {
        "index": piece.choice,
        "text": piece.text,
        "logprobs": logprobs,
        "finish_reason": piece.finish_reason,
    }


def _choice(row: Completion) -> dict[str, Any]:
    logprobs: dict[str, list[Any]] | None = None
    if row.logprobs is not None:
        logprobs = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        offset = 0
        for one in row.logprobs:
            logprobs["tokens"].append(one["token"])
            logprobs["token_logprobs"].append(one["logprob"])
            logprobs["top_logprobs"].append(
                {other["token"]: other["logprob"] for other in one["top_logprobs"]}
            )
            logprobs["text_offset"].append(offset)
            offset += len(one["token"])
    return {"index": row.choice, "text": row.text, "logprobs": logprobs, "finish_reason": row.finish_reason}
