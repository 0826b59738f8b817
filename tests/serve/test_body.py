"""No body makes the service fail, and what is wrong with one is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serve.conftest import ASK, BODY, CHAT, Service, Start
from support import SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR

pytestmark = pytest.mark.shares


def test_a_large_body_is_refused_before_it_is_read(service: Service) -> None:
    answer = service.post(CHAT, content=b"x" * (10 << 20), headers={"content-type": "application/json"})
    assert answer.status_code == 413

    def parts() -> Iterator[bytes]:
        for _ in range(80):
            yield b"x" * (1 << 17)

    answer = service.post(CHAT, content=parts(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[1]", "application/json", 400),
        (b'{"model": "\xff"}', "application/json", 400),
        (b'{"temperature": NaN}', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (json.dumps(BODY).encode(), "text/plain", 415),
    ],
    ids=str,
)
def test_a_body_that_is_not_json_is_refused(service: Service, content: bytes, kind: str, status: int) -> None:
    answer = service.post(CHAT, content=content, headers={"content-type": kind})
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("path", "given"),
    [
        (CHAT, {"tools": None, "foo": None}),
        (CHAT, {"stream": True, "stream_options": {"include_usage": None}}),
        (CHAT, {"response_format": {"type": "text", "json_schema": None}}),
        ("/v1/responses", {"text": {"format": {"type": "text", "schema": None}, "verbosity": None}}),
    ],
)
def test_what_is_null_is_not_given(service: Service, path: str, given: dict[str, Any]) -> None:
    """Clients whose types have all members send them as null, at every depth."""
    body = BODY if path == CHAT else {"model": SCRIPTED_GENERATOR, "input": "Hi"}
    assert service.post(path, body | given).status_code == 200


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"stop": 5}, "stop"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"top_p": 7}, "top_p"),
        ({"messages": [{"role": "bot", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [*ASK, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [*ASK, {"role": "user", "content": None}]}, "messages[1].content"),
        ({"messages": [{"role": "assistant"}, *ASK]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "tool_call_id": "1"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "name": 5, "content": "Hi"}]}, "messages[0].name"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_completion_tokens"),
        ({"model": f"mindful/{SCRIPTED_GENERATOR}", "messages": [{"role": "user"}]}, "messages[0].content"),
        ({"model": f"mindful/{SCRIPTED_GENERATOR}", "presence_penalty": 7}, "presence_penalty"),
        ({"foo": 1}, "foo"),
    ],
    ids=str,
)
def test_a_wrong_member_is_named(service: Service, wrong: dict[str, Any], param: str) -> None:
    answer = service.post(CHAT, BODY | wrong)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("path", "wrong", "param"),
    [
        ("/v1/completions", {"prompt": ""}, "prompt"),
        ("/v1/completions", {"prompt": "a\0b"}, "prompt"),
        ("/v1/embeddings", {"input": " "}, "input"),
        ("/v1/embeddings", {"input": ["a"] * 3000}, "input"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 1 << 63}, "top_n"),
        ("/v1/rerank", {"query": "a", "documents": [" "]}, "documents"),
        ("/v1/responses", {"input": "a\0b"}, "input"),
        ("/v1/responses", {"input": "a", "instructions": "a\0b"}, "instructions"),
        ("/v1/responses", {"input": "a", "max_output_tokens": 0}, "max_output_tokens"),
        (CHAT, {"messages": [{"role": "user", "content": "a\0b"}], "model": "mindful/default"}, "messages"),
        (
            CHAT,
            {
                "messages": ASK,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {"$ref": "#/b"}},
                },
            },
            "response_format.json_schema",
        ),
    ],
)
def test_an_argument_of_another_name_is_named_by_the_bodys_member(
    service: Service, path: str, wrong: dict[str, Any], param: str
) -> None:
    answer = service.post(path, {"model": "default"} | wrong)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert "valid string" not in answer.json()["error"]["message"]
    if param == "prompt":
        assert answer.json()["error"]["message"].startswith("prompt ")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": ASK}),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/rerank", {"query": "a", "documents": ["a"]}),
        ("/v1/responses", {"input": "a"}),
    ],
)
def test_a_model_whose_name_no_database_can_have_is_no_fault_of_the_database(
    service: Service, path: str, body: dict[str, Any]
) -> None:
    assert service.post(path, body | {"model": "a\0b"}).status_code in (400, 404)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
MEMBERS: dict[str, list[str]] = {
    CHAT: [
        "model", "messages", "stream", "stream_options", "max_tokens", "temperature", "top_p", "top_k", "min_p", "stop",
        "logit_bias", "seed", "n", "response_format", "tools", "tool_choice", "logprobs", "top_logprobs", "grammar",
        "presence_penalty", "repeat_penalty", "user", "metadata", "store",
    ],
    "/v1/completions": ["model", "prompt", "max_tokens", "logprobs", "stop", "n", "stream", "echo", "seed"],
    "/v1/embeddings": ["model", "input", "encoding_format", "dimensions"],
    "/v1/rerank": ["model", "query", "documents", "top_n", "return_documents"],
    "/v1/responses": [
        "model", "input", "instructions", "previous_response_id", "conversation", "store", "stream", "text", "tools",
        "tool_choice", "max_output_tokens", "temperature", "top_p",
    ],
    "/v1/conversations": ["metadata"],
}  # fmt: skip
VALID: dict[str, dict[str, Any]] = {
    CHAT: BODY,
    "/v1/completions": {"model": SCRIPTED_GENERATOR, "prompt": "Hi"},
    "/v1/embeddings": {"model": SCRIPTED_EMBEDDER, "input": "tea"},
    "/v1/rerank": {"model": "judge", "query": "tea", "documents": ["tea"]},
    "/v1/responses": {"model": SCRIPTED_GENERATOR, "input": "Hi"},
    "/v1/conversations": {},
}
LIKELY = {
    "model": st.sampled_from([SCRIPTED_GENERATOR, f"mindful/{SCRIPTED_GENERATOR}", "", "default", "absent"]),
    "messages": st.lists(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["user", "assistant", "system", "tool"]) | JSON,
                "content": st.text(max_size=30) | JSON,
            }
        ),
        max_size=4,
    ),
    "tools": st.lists(
        st.fixed_dictionaries({"type": st.just("function"), "function": st.fixed_dictionaries(
            {"name": st.just("clock") | JSON, "parameters": JSON})}) | JSON,
        max_size=3,
    ),
    "response_format": st.fixed_dictionaries(
        {"type": st.just("json_schema"), "json_schema": st.fixed_dictionaries({"name": st.just("x"), "schema": JSON})}
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", MEMBERS)
def test_no_body_makes_the_service_fail(path: str, start: Start, judge: str) -> None:
    service = start("--no-keys", tenant="customer-7")
    found = {name: LIKELY.get(name, JSON) | JSON for name in MEMBERS[path]}
    bodies = st.fixed_dictionaries({}, optional=found).map(lambda given: VALID[path] | given)

    with httpx2.Client(base_url=service.url, timeout=60) as client:

        @settings(
            max_examples=60,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        )
        @given(bodies | JSON)
        def attempt(body: Any) -> None:
            content = json.dumps(body).encode()
            answer = client.post(path, content=content, headers={"content-type": "application/json"})
            assert answer.status_code in (200, 400, 404, 503), (body, answer.text)
            # No default reranker or embedder is not a failure of the body.
            assert answer.status_code != 503 or "default" in answer.text, (body, answer.text)

        attempt()
