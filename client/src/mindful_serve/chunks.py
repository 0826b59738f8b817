"""What answers in OpenAI's form of chats are made of."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from mindful_client.types import CompletionPiece

from mindful_serve.exchange import Exchange, data
from mindful_serve.requests import ChatRequest

MEMORY = "mindful/"
"""What the names of models begin with that recall and store."""


def head_of(kind: str, model: str) -> dict[str, Any]:
    """Return what every answer and every chunk begins with."""
    return {"id": f"chatcmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


def usage_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up what choices cost; they share one prompt."""
    prompt = rows[0]["prompt_tokens"] if rows else 0
    made = sum(row["completion_tokens"] for row in rows)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": prompt + made,
        "prompt_tokens_details": {"cached_tokens": rows[0]["cached_tokens"] if rows else 0},
    }


class Chunks:
    """The events of a streamed answer."""

    def __init__(self, exchange: Exchange, body: ChatRequest) -> None:
        self._exchange = exchange
        self._body = body
        self._head = head_of("chat.completion.chunk", body.model)
        self._begun: set[int] = set()
        self._usages: list[dict[str, Any]] = []

    async def events(self, pieces: AsyncIterator[CompletionPiece]) -> AsyncIterator[dict[str, str]]:
        """Yield a chunk for each piece, the usage if it is asked for, and the end."""
        async for piece in pieces:
            if piece.usage is not None:
                self._usages.append(piece.usage)
            yield self.chunk(self._delta(piece), piece.choice, piece.finish_reason, _logprobs(piece))
        for event in self.end(usage_of(self._usages)):
            yield event

    def end(self, usage: dict[str, Any]) -> list[dict[str, str]]:
        """Return what follows the last choice."""
        self._exchange.note(usage=usage)
        options = self._body.stream_options
        last = (
            [data(self._head | {"choices": [], "usage": usage})] if options and options.include_usage else []
        )
        return last + [{"data": "[DONE]"}] * self._exchange.settings.sends_done

    def chunk(
        self,
        delta: dict[str, Any],
        choice: int = 0,
        finish_reason: str | None = None,
        logprobs: Any = None,
        **more: Any,
    ) -> dict[str, str]:
        """Return one event; the first of a choice says whose words follow."""
        if choice not in self._begun:
            self._begun.add(choice)
            delta = {"role": "assistant", "content": ""} | delta
        piece = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return data(self._head | {"choices": [piece]} | more)

    @staticmethod
    def _delta(piece: CompletionPiece) -> dict[str, Any]:
        call = piece.tool_call
        if call is None:
            return {"content": piece.text} if piece.finish_reason is None else {}
        function = {key: call[key] for key in ("name", "arguments") if key in call}
        delta: dict[str, Any] = {"index": 0, "function": function}
        if "id" in call:
            delta |= {"id": call["id"], "type": "function"}
        return {"tool_calls": [delta]}


def _logprobs(piece: CompletionPiece) -> dict[str, Any] | None:
    if piece.token is None or piece.bytes is None:
        return None
    token = {
        "token": piece.token,
        "bytes": list(bytes.fromhex(piece.bytes.removeprefix("\\x"))),
        "logprob": piece.logprob,
        "top_logprobs": piece.alternatives,
    }
    return {"content": [token], "refusal": None}
