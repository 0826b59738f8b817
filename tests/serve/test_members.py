"""Every member of a body is used, refused, or listed here as neutral: the service drops nothing that a client asks for.

A recorder stands in the place of the database. A member is used if the calls of SQL differ with it, or the answer does
for members of the answer's form.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, get_args
from uuid import UUID

import httpx2
import pytest
from mindful_client.types import Completion, CompletionPiece
from mindful_serve import app, requests
from mindful_serve.database import Caller, Database
from mindful_serve.settings import Settings
from pydantic import BaseModel

SESSION = UUID(int=7)
ASK = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}}
PATHS: dict[type[BaseModel], tuple[str, dict[str, Any]]] = {
    requests.ChatRequest: ("/v1/chat/completions", {"model": "m", "messages": ASK}),
    requests.TextRequest: ("/v1/completions", {"model": "m", "prompt": "Hi"}),
    requests.EmbeddingRequest: ("/v1/embeddings", {"model": "m", "input": "Hi"}),
    requests.RerankRequest: ("/v1/rerank", {"model": "m", "query": "tea", "documents": ["tea", "a dog"]}),
    requests.ResponseRequest: ("/v1/responses", {"model": "m", "input": "Hi"}),
    requests.ConversationRequest: ("/v1/conversations", {}),
}
VARIANTS: dict[type[BaseModel], dict[str, dict[str, Any]]] = {
    requests.ChatRequest: {
        "plain": {},
        "stream": {"stream": True},
        "memory": {"model": "mindful/m"},
        "memory stream": {"model": "mindful/m", "stream": True},
    },
    requests.TextRequest: {"plain": {}, "stream": {"stream": True}},
    requests.ResponseRequest: {"store": {}, "memory": {"model": "mindful/m"}, "no store": {"store": False}},
}
# What a member is set to, by its name or by its model's and its own; and the body that it is compared with.
NAMED: dict[str, Any] = {"name": "a", "schema": OBJECT}
JSON_SCHEMA = {"response_format": {"type": "json_schema", "json_schema": NAMED}}
TEXT_SCHEMA = {"text": {"format": {"type": "json_schema"} | NAMED}}
FUNCTION: dict[str, Any] = {
    "tools": [{"type": "function", "name": "clock", "parameters": {"type": "object"}}]
}
CHOICE: dict[str, Any] = {"type": "function", "function": {"name": "clock"}}
SAMPLES: dict[str, Any] = {
    "model": "other", "user": "ana", "metadata": {"a": "b"}, "safety_identifier": "a", "prompt_cache_key": "a",
    "service_tier": "default", "stream_options.include_usage": {"include_usage": True}, "max_tokens": 5,
    "max_completion_tokens": 5, "temperature": 0.5, "top_p": 0.5, "top_k": 5, "min_p": 0.1, "presence_penalty": 0.5,
    "frequency_penalty": 0.5, "repeat_penalty": 1.5, "logit_bias": {"5": 1}, "stop": ["a"], "seed": 5, "n": 2,
    "grammar": 'root ::= "a"', "messages": [{"role": "user", "content": "Bye"}], "tools": [TOOL],
    "parallel_tool_calls": True, "logprobs": True, "modalities": ["text"], "prompt": "Bye", "TextRequest.logprobs": 2,
    "echo": False, "best_of": 1, "input": "Bye", "encoding_format": "base64", "dimensions": 2, "query": "coffee",
    "documents": ["coffee"], "top_n": 1, "return_documents": True, "instructions": "Be brief.",
    "previous_response_id": f"resp_{SESSION.hex}_1", "conversation.id": {"id": f"conv_{SESSION}"},
    "max_output_tokens": 5, "truncation": "disabled", "include": [], "background": False,
    "response_format.type": {"type": "json_object"}, "tool_choice": "required", "conversation": f"conv_{SESSION}",
    "tool_choice.type": CHOICE, "tool_choice.function.name": CHOICE,
    "ResponseRequest.tool_choice.type": {"type": "function", "name": "clock"},
    "ResponseRequest.tool_choice.name": {"type": "function", "name": "clock"},
    "ResponseRequest.tools": FUNCTION["tools"], "top_logprobs": 2,
    "text.format.type": {"format": {"type": "json_object"}},
}  # fmt: skip
COMPARED: dict[str, dict[str, Any]] = {
    "tool_choice": {"tools": [TOOL]},
    "tool_choice.type": {"tools": [TOOL]},
    "ResponseRequest.tool_choice": FUNCTION,
    "tool_choice.function.name": {"tools": [TOOL]},
    "ResponseRequest.tool_choice.type": FUNCTION,
    "ResponseRequest.tool_choice.name": FUNCTION,
    "top_logprobs": {"logprobs": True},
}
for path, schema in (("response_format.json_schema", JSON_SCHEMA), ("text.format", TEXT_SCHEMA)):
    top, *rest = path.split(".")
    for name, value in (("name", "b"), ("description", "b"), ("strict", True), ("schema", {"type": "array"})):
        changed: Any = {"name": "a", "schema": OBJECT, name: value}
        inner = {"format": {"type": "json_schema"} | changed}
        outer = {"type": "json_schema", "json_schema": changed}
        SAMPLES[f"{path}.{name}"] = outer if top == "response_format" else inner
        COMPARED[f"{path}.{name}"] = schema
# Members of the answer's form.
FORM = {"stream", "store", "stream_options.include_usage", "encoding_format", "return_documents"}
SAMPLES |= {"stream": True, "store": False}
NEUTRAL = {
    "user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier",  # who asks
    "parallel_tool_calls", "response_format.json_schema.name", "response_format.json_schema.description",
    "response_format.json_schema.strict", "text.format.name", "text.format.description", "text.format.strict",
    "modalities", "echo", "best_of", "truncation", "include", "background", "dimensions",  # what is done anyway
    "ChatRequest.store",  # nothing is stored under an id
}  # fmt: skip
# User interfaces offer their tools with every request, and a model need not call what it is offered.
OFFERED = {"memory tools", "memory stream tools"}


class Recorder(Database):
    """Answers every call of SQL, and keeps what was called."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.calls: list[Any] = []

    async def open(self) -> None:
        """Connect to nothing."""

    async def caller(self, _key: str | None) -> Caller:
        return Caller("customer-7")

    async def rows(self, tenant: str | None, sql: str, parameters: Any = None) -> list[dict[str, Any]]:
        self.calls.append((sql, parameters))
        return [self._detail() | {"turn": 1, "is_last": True, "system_prompt": "Be brief."}]

    async def compute(
        self, _tenant: Any, sql: str, parameters: Any, *, reads: bool = False
    ) -> list[dict[str, Any]]:
        self.calls.append((sql, parameters))
        return [{"vector": [0.6, 0.8], "tokens": 1, "score": 0.5, "index": 0}]

    def client(self, tenant: str | None, *, short: bool = False) -> Any:
        return self

    def _detail(self) -> dict[str, Any]:
        names = ("action", "confidence", "probability", "model", "prompt_tokens", "cached_tokens")
        whole = dict.fromkeys((*names, "completion_tokens", "message_id"), 1)
        return whole | {"reply": "Yes", "session_id": SESSION, "memory_ids": [], "finish_reason": "stop"}

    async def llm_chat_detail(self, *given: Any, **arguments: Any) -> Any:
        self.calls.append(("llm_chat", given, arguments))
        return SimpleNamespace(**self._detail())

    async def llm_chat_stream(self, *given: Any, **arguments: Any) -> AsyncIterator[str]:
        self.calls.append(("llm_chat", given, arguments))
        yield "Yes"

    async def llm_complete(self, *given: Any, **arguments: Any) -> list[Completion]:
        self.calls.append(("llm_complete", given, arguments))
        return [Completion(0, "Yes", None, "stop", None, "m", 1, 0, 1, 0.5, {}, 1.0, 1.0)]

    async def llm_complete_stream(self, *given: Any, **arguments: Any) -> AsyncIterator[CompletionPiece]:
        self.calls.append(("llm_complete", given, arguments))
        usage = {"prompt_tokens": 1, "cached_tokens": 0, "completion_tokens": 1}
        yield CompletionPiece(0, "Yes", None, None, None, None, None, "stop", usage)

    async def session_continue(self, *given: Any) -> UUID:
        self.calls.append(("session_continue", given))
        return SESSION

    async def session_start(self, **arguments: Any) -> UUID:
        self.calls.append(("session_start", arguments))
        return SESSION


def members(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Yield the members of a body by their paths, those of models within it too."""
    for name, field in model.model_fields.items():
        shown = before + (field.alias or name)
        inner = [one for one in (field.annotation, *get_args(field.annotation)) if is_model(one)]
        for one in inner:
            yield from members(one, f"{shown}.")
        others = set(get_args(field.annotation)) - {*inner, type(None)}
        if not inner or others:
            yield shown


def is_model(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, BaseModel)


def reached(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a model, those that it is made of, and those within it."""
    yield from (one for one in model.__mro__ if is_model(one))
    for field in model.model_fields.values():
        for one in (field.annotation, *get_args(field.annotation)):
            if is_model(one):
                yield from reached(one)


def cases() -> Iterator[Any]:
    for model in PATHS:
        for variant in VARIANTS.get(model, {"plain": {}}):
            for member in members(model):
                yield pytest.param(model, variant, member, id=f"{model.__name__}-{variant}-{member}")


async def answer(
    monkeypatch: pytest.MonkeyPatch, path: str, body: Mapping[str, Any]
) -> tuple[httpx2.Response, list[Any]]:
    """Send a body to the service, and return what it answered and the calls that it made."""
    monkeypatch.setattr(app, "Database", Recorder)
    service = app.application(Settings())
    transport = httpx2.ASGITransport(app=service)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        found = await client.post(path, json=dict(body))
    return found, service.state.database.calls


def same(text: str) -> str:
    """Return an answer without ids and times, which differ between equal answers."""
    return re.sub(r'"(id|created|created_at|item_id)": ?("[^"]*"|\d+)|[0-9a-f]{32}', "", text)


def of(table: Mapping[str, Any], model: type[BaseModel], member: str, default: Any = None) -> Any:
    return table.get(f"{model.__name__}.{member}", table.get(member, default))


def test_every_model_of_a_body_is_walked() -> None:
    found = {one for model in PATHS for one in reached(model)}
    written = {one for one in vars(requests).values() if is_model(one)}
    assert written - found == set()


@pytest.mark.parametrize(("model", "variant", "member"), list(cases()))
async def test_a_member_is_used_or_refused(
    monkeypatch: pytest.MonkeyPatch, model: type[BaseModel], variant: str, member: str
) -> None:
    path, body = PATHS[model]
    sample = of(SAMPLES, model, member)
    assert sample is not None, "give a sample of the member"
    base = body | VARIANTS.get(model, {}).get(variant, {})
    given = base | of(COMPARED, model, member, {})
    top = member.partition(".")[0]
    plain, calls = await answer(monkeypatch, path, given)
    if plain.status_code == 400:
        given = base
        plain, calls = await answer(monkeypatch, path, given)
    given = {name: value for name, value in given.items() if name != top} | {top: sample}
    found, others = await answer(monkeypatch, path, given)
    assert found.status_code in (200, 400), found.text
    if found.status_code == 400:
        named = found.json()["error"]["param"].partition(".")[0]
        assert named == top, found.text
        return
    is_used = others != calls or (member in FORM and same(found.text) != same(plain.text))
    is_neutral = (
        member in NEUTRAL or f"{model.__name__}.{member}" in NEUTRAL or f"{variant} {member}" in OFFERED
    )
    is_set = given == base
    assert is_used or is_neutral or is_set, (calls, found.text)
    assert not (is_used and is_neutral) or model is requests.ConversationRequest, (
        "it is used: it is not neutral"
    )
