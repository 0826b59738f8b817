"""Whatever is sent, the service answers: no status of 500, no internal error of MCP, and its process goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import mindful_serve.mcp.server as _registered  # noqa: F401
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mindful_serve.mcp.tool import TOOLS
from serve.conftest import Start
from support import SCRIPTED_GENERATOR

pytestmark = pytest.mark.shares
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TEXT = st.text(max_size=20) | st.sampled_from(
    ["", " ", "\0", "\ud800", "tea", "%s", "'; select 1 --", "x" * 5000]
)
NUMBER = (
    st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, -1, 1, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63, 1e308, -0.0, 5e-324])
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
FORMATS = {
    "uuid": st.uuids().map(str),
    "date-time": st.datetimes().map(lambda one: f"{one.isoformat()}Z")
    | st.sampled_from(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "2026-01-01", "infinity"]),
}
CHEAP = {"model": st.sampled_from([SCRIPTED_GENERATOR, "absent"]), "max_tokens": st.integers(1, 9)}
METHODS = {
    "resources/read": st.fixed_dictionaries(
        {"uri": TEXT.map(lambda one: f"memory://{one}") | st.integers().map(lambda one: f"memory://{one}")
         | TEXT.map(lambda one: f"session://{one}") | st.uuids().map(lambda one: f"session://{one}") | JSON}
    ),
    "prompts/get": st.fixed_dictionaries(
        {"name": st.sampled_from(["recall", "absent"]) | JSON,
         "arguments": st.dictionaries(TEXT, TEXT, max_size=3) | JSON}
    ),
    "completion/complete": st.fixed_dictionaries(
        {"ref": st.fixed_dictionaries(
            {"type": st.sampled_from(["ref/prompt", "ref/resource"]), "name": TEXT, "uri": TEXT}) | JSON,
         "argument": st.fixed_dictionaries({"name": TEXT, "value": TEXT}) | JSON}
    ),
    "tools/call": st.fixed_dictionaries({"name": TEXT | JSON, "arguments": JSON}),
    "tools/list": st.fixed_dictionaries({}, optional={"cursor": JSON, "_meta": JSON}),
}  # fmt: skip


def of_schema(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values of a tool's input schema."""
    if "anyOf" in schema:
        return st.one_of([of_schema(one) for one in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "object" and "properties" in schema:
        found = {name: of_schema(one) for name, one in schema["properties"].items()}
        found |= {name: CHEAP[name] for name in found.keys() & CHEAP}
        required = {*schema.get("required", []), *CHEAP}
        return st.fixed_dictionaries(
            {name: one for name, one in found.items() if name in required},
            optional={name: one for name, one in found.items() if name not in required},
        )
    if kind == "array":
        return st.lists(of_schema(schema.get("items", {})), min_size=schema.get("minItems", 0), max_size=4)
    if kind in ("integer", "number"):
        low, high = schema.get("minimum"), schema.get("maximum")
        above = schema.get("exclusiveMinimum", float("-inf"))
        numbers: st.SearchStrategy[Any] = st.floats(low, high, allow_nan=False)
        numbers = st.integers(low, high) if kind == "integer" else numbers
        return numbers.filter(lambda one: bool(above < one < float("inf")))
    if kind == "string":
        return FORMATS.get(schema.get("format", ""), TEXT)
    plain = {"boolean": st.booleans(), "null": st.none(), "object": st.dictionaries(TEXT, JSON, max_size=3)}
    return plain.get(kind or "", JSON)


@st.composite
def calls(draw: Callable[..., Any], name: str) -> dict[str, Any]:
    """Arguments of a tool: right ones, some of them replaced by anything, left out, or added."""
    schema = TOOLS[name].description.input_schema
    arguments = draw(of_schema(schema))
    for member in draw(st.sets(st.sampled_from([*schema["properties"], "absent"]), max_size=2)):
        arguments[member] = draw(JSON)
    if draw(st.booleans()):
        arguments.pop(draw(st.sampled_from([*schema["properties"], "absent"])), None)
    return {"name": name, "arguments": arguments}


@pytest.fixture
def mcp(start: Start, admin: psycopg.Connection) -> Iterator[Callable[[str, Any], None]]:
    """Sends a request of MCP, and checks that it is answered."""
    admin.execute("select model_default_set(%s, force => true)", (SCRIPTED_GENERATOR,))
    service = start("--no-keys", tenant="customer-7")
    with httpx2.Client(base_url=service.url, timeout=120) as client:

        def send(method: str, params: Any) -> None:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = client.post("/mcp?tools=all", content=json.dumps(request).encode(), headers=HEADERS)
            assert answer.status_code < 500, (method, params, answer.text)
            text = answer.text.partition("data: ")[2] or answer.text
            found = json.loads(text)
            assert found.get("error", {}).get("code") != -32603, (method, params, found)
            assert "the service failed" not in text, (method, params, found)
            assert "the database reported an error" not in text, (method, params, found)

        yield send


def tried(strategy: st.SearchStrategy[Any], attempt: Callable[[Any], None], examples: int) -> None:
    """Try the same examples at each run."""
    checks = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    checks(given(strategy)(attempt))()


def test_no_arguments_make_a_tool_fail(mcp: Callable[[str, Any], None]) -> None:
    for name in sorted(TOOLS):
        tried(calls(name), lambda params: mcp("tools/call", params), 15)


@pytest.mark.parametrize("method", METHODS)
def test_no_parameters_make_a_method_fail(mcp: Callable[[str, Any], None], method: str) -> None:
    tried(METHODS[method] | JSON, lambda params: mcp(method, params), 30)
