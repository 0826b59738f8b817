"""A response of /v1/responses as an object and as events."""

from __future__ import annotations

import time
import uuid
from typing import Any

from mindful_client.types import CompletionPiece
from pydantic import BaseModel

from mindful_serve import memory
from mindful_serve.chunks import usage_of
from mindful_serve.exchange import data
from mindful_serve.requests import ResponseRequest


class Shown:
    """A response while it is made."""

    def __init__(
        self,
        body: ResponseRequest,
        response_id: str,
        x_mindful: dict[str, Any] | None = None,
        created: int | None = None,
    ) -> None:
        self._body = body
        self.id = response_id
        self.x_mindful = x_mindful
        self._created = int(time.time()) if created is None else created
        self._number = 0
        self._message = f"msg_{uuid.uuid4().hex}"
        self._text = ""
        self._call: dict[str, Any] | None = None
        self._is_open = False
        self._reason: str | None = None
        self.usage: dict[str, Any] | None = None

    def take(self, text: str, calls: list[dict[str, str]], reason: str, usage: dict[str, Any] | None) -> None:
        """Take a finished answer."""
        self._text, self._reason, self.usage = text, reason, usage
        if calls:
            self._call = _call_item(calls[0]["id"], calls[0]["name"], calls[0]["arguments"])

    def response(self) -> dict[str, Any]:
        """Return the response as it stands."""
        body = self._body
        status = (
            "in_progress"
            if self._reason is None
            else "incomplete"
            if self._reason == "length"
            else "completed"
        )
        shown: dict[str, Any] = {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": body.model,
            "output": [] if self._reason is None else self._output(),
            "parallel_tool_calls": False,
            "previous_response_id": body.previous_response_id,
            "store": body.store,
            "temperature": body.temperature,
            "text": _written(body.text) if body.text and body.text.format else {"format": {"type": "text"}},
            "tool_choice": _written(body.tool_choice or "auto"),
            "tools": [tool for tool in body.tools or [] if tool.get("type") == "function"],
            "top_p": body.top_p,
            "truncation": "disabled",
            "usage": None if self.usage is None else _usage(self.usage),
        }
        if self.x_mindful is not None:
            shown["x_mindful"] = self.x_mindful
            shown["conversation"] = {"id": f"{memory.CONVERSATION}{self.x_mindful['session_id']}"}
        return shown

    def begin(self) -> list[dict[str, str]]:
        """Return the events before an answer."""
        return [
            self._event(kind, response=self.response())
            for kind in ("response.created", "response.in_progress")
        ]

    def text(self, text: str) -> list[dict[str, str]]:
        """Return the events of a piece of text."""
        events = [] if self._is_open else self._opened()
        self._text += text
        place = {"item_id": self._message, "output_index": 0, "content_index": 0}
        return [*events, self._event("response.output_text.delta", **place, delta=text, logprobs=[])]

    def piece(self, piece: CompletionPiece) -> list[dict[str, str]]:
        """Return the events of a piece of an answer."""
        if piece.usage is not None:
            self._reason, self.usage = piece.finish_reason, usage_of([piece.usage])
            return []
        if piece.tool_call is None:
            return self.text(piece.text) if piece.text else []
        events = []
        if self._call is None:
            self._call = _call_item(piece.tool_call["id"], piece.tool_call["name"], "")
            events.append(self._event("response.output_item.added", output_index=0, item=dict(self._call)))
        self._call["arguments"] += piece.tool_call["arguments"]
        place = {"item_id": self._call["id"], "output_index": 0, "delta": piece.tool_call["arguments"]}
        return [*events, self._event("response.function_call_arguments.delta", **place)]

    def end(self) -> list[dict[str, str]]:
        """Return the events after an answer."""
        events: list[dict[str, str]] = []
        if self._call is not None:
            place = {"item_id": self._call["id"], "output_index": 0, "name": self._call["name"]}
            arguments = self._call["arguments"]
            events.append(self._event("response.function_call_arguments.done", **place, arguments=arguments))
        else:
            if not self._is_open:
                events += self._opened()
            place = {"item_id": self._message, "output_index": 0, "content_index": 0}
            events.append(self._event("response.output_text.done", **place, text=self._text, logprobs=[]))
            events.append(self._event("response.content_part.done", **place, part=_text_part(self._text)))
        (item,) = self._output()
        events.append(self._event("response.output_item.done", output_index=0, item=item))
        kind = "response.incomplete" if self._reason == "length" else "response.completed"
        return [*events, self._event(kind, response=self.response())]

    def finish(self, reason: str, usage: dict[str, Any] | None) -> None:
        """Say why the answer ended, and what it cost."""
        self._reason, self.usage = reason, usage

    def _opened(self) -> list[dict[str, str]]:
        self._is_open = True
        item = {
            "id": self._message,
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        place = {"item_id": self._message, "output_index": 0, "content_index": 0}
        return [
            self._event("response.output_item.added", output_index=0, item=item),
            self._event("response.content_part.added", **place, part=_text_part("")),
        ]

    def _output(self) -> list[dict[str, Any]]:
        if self._call is not None:
            return [self._call | {"status": "completed"}]
        status = "incomplete" if self._reason == "length" else "completed"
        content = [_text_part(self._text)]
        return [
            {
                "id": self._message,
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": content,
            }
        ]

    def _event(self, kind: str, **members: Any) -> dict[str, str]:
        event = data({"type": kind, "sequence_number": self._number} | members) | {"event": kind}
        self._number += 1
        return event


def _written(given: BaseModel | str) -> Any:
    return given if isinstance(given, str) else given.model_dump(by_alias=True, exclude_none=True)


def _call_item(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {
        "id": f"fc_{call_id.removeprefix('call_')}",
        "type": "function_call",
        "status": "in_progress",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"] | {"cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
