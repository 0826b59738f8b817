"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from mindful_client.types import Completion
from starlette.responses import JSONResponse, Response

from mindful_serve import memory
from mindful_serve.chunks import MEMORY, Chunks, head_of, usage_of
from mindful_serve.errors import ApiError
from mindful_serve.exchange import Exchange
from mindful_serve.requests import ChatRequest, ToolChoice


async def chat(exchange: Exchange, body: ChatRequest) -> Response:
    """Answer a list of messages."""
    remembers = body.model.startswith(MEMORY)
    if remembers and not memory.is_errand(body.messages):
        return await memory.chat(exchange, body)
    exchange.require("memory" if remembers else "chat")
    arguments = arguments_of(exchange, body)
    if remembers and arguments["max_tokens"] == -1:
        arguments["max_tokens"] = memory.ERRAND_TOKENS
    client = exchange.database.client(exchange.caller.tenant)
    if body.stream:
        return await exchange.stream(
            lambda: client.llm_complete_stream(body.messages, **arguments), Chunks(exchange, body).events
        )
    rows = await exchange.whole(client.llm_complete(body.messages, **arguments))
    usage = usage_of([vars(row) for row in rows])
    exchange.note(usage=usage)
    head = head_of("chat.completion", body.model)
    return JSONResponse(head | {"choices": [_choice(row) for row in rows], "usage": usage})


def arguments_of(exchange: Exchange, body: ChatRequest) -> dict[str, Any]:
    """Return the arguments of llm_complete that a body asks for."""
    arguments = body.sampling() | {"model": exchange.settings.model(body.model.removeprefix(MEMORY))}
    if (most := body.most_tokens()) is not None:
        arguments["max_tokens"] = most
    if body.tools is not None:
        arguments["tools"] = body.tools
    if body.tool_choice is not None and body.tools:
        choice = body.tool_choice
        arguments["tool_choice"] = choice.function.name if isinstance(choice, ToolChoice) else choice
    elif body.tool_choice not in (None, "none", "auto"):
        raise ApiError(400, "tool_choice is given without tools", param="tool_choice")
    if body.response_format is not None:
        try:
            arguments["json_schema"] = body.response_format.schema_of()
        except ValueError as error:
            raise ApiError(400, str(error), param="response_format") from None
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs is given without logprobs", param="top_logprobs")
    if body.logprobs:
        arguments["top_logprobs"] = body.top_logprobs or 0
    return arguments


def _choice(row: Completion) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": row.text, "refusal": None}
    if row.tool_calls:
        message["content"] = row.text or None
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in row.tool_calls
        ]
    logprobs = None if row.logprobs is None else {"content": row.logprobs, "refusal": None}
    return {"index": row.choice, "message": message, "logprobs": logprobs, "finish_reason": row.finish_reason}
