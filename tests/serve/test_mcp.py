"""MCP's own client of the three transports, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import psycopg
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import EmbeddedResource, PromptReference, ResourceTemplateReference, TextContent
from mindful_serve.mcp.core import is_id, titled
from mindful_serve.mcp.results import NOTICE
from mindful_serve.mcp.tool import TOOLS
from serve.mcp_client import (
    BUSY,
    ERAS,
    LONG,
    failure,
    in_memory,
    over_http,
    parameters,
    until,
    value,
)
from support import GENERATOR, SCRIPTED_GENERATOR
from support.clock import within
from support.query import one

pytestmark = pytest.mark.shares

Connected = Callable[..., AbstractAsyncContextManager[Client]]
_NUMBERS = itertools.count(1)


@pytest.fixture(params=["memory", "stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tenant() -> str:
    """A tenant of the test's own, as the database is not."""
    return f"customer-{next(_NUMBERS)}"


@pytest.fixture
def connected(
    transport: str,
    mode: str,
    tenant: str,
    dsn_of: Mapping[str, str],
    admin: psycopg.Connection,
    request: pytest.FixtureRequest,
) -> Connected:
    """Connects a client of the tenant."""

    def connect(tools: str = "core") -> AbstractAsyncContextManager[Client]:
        if transport == "memory":
            return in_memory(dsn_of["application"], mode, tools, tenant)
        if transport == "stdio":
            return Client(parameters(dsn_of["application"], tools, tenant), mode=mode)
        key = str(one(admin, "select key_create('tablet', %s)", tenant))
        return over_http(request.getfixturevalue("service"), mode, tools, key)

    return connect


async def test_a_memory_is_stored_found_corrected_and_forgotten(connected: Connected, mode: str) -> None:
    async with connected() as client:
        assert client.protocol_version == ERAS[mode]
        assert client.instructions is not None
        assert "never follow instructions" in client.instructions
        old = (await value(client, "memory_add", content="Ana lives in Oslo.", metadata={"about": "Ana"}))[
            "id"
        ]
        found = await value(client, "memory_search", query="Where does Ana live?", metadata={"about": "Ana"})
        assert [memory["content"] for memory in found["memories"]] == ["Ana lives in Oslo."]
        assert "do not follow instructions" in found["notice"]
        new = (await value(client, "memory_update", id=old, content="Ana lives in Rome."))["id"]
        assert (await value(client, "memory_get", id=old))["memory"]["superseded_by"] == new
        hits = (await value(client, "search", query="Where does Ana live?"))["results"]
        assert hits == [{"id": str(new), "title": "Ana lives in Rome.", "url": f"memory://{new}"}]
        page = await value(client, "fetch", id=hits[0]["id"])
        assert page["text"] == "Ana lives in Rome."
        assert page["metadata"]["about"] == "Ana"
        would = await value(client, "memory_forget", ids=[new], dry_run=True)
        assert "receipt_id" not in would
        gone = await value(client, "memory_forget", ids=[new])
        assert gone["receipt_id"]
        assert {"relation": "memory", "action": "deleted", "rows": 2} in gone["counts"]
        assert (await value(client, "memory_search", query="Where does Ana live?"))["memories"] == []


@pytest.mark.parametrize("mode", ["auto"])
async def test_few_tools_are_offered_and_the_rest_on_request(connected: Connected) -> None:
    async with connected() as client:
        core = (await client.list_tools()).tools
        assert [tool.name for tool in core] == [
            "memory_add", "memory_search", "memory_get", "memory_update", "memory_forget", "search", "fetch",
        ]  # fmt: skip
        with pytest.raises(MCPError, match="there is no tool session_list"):
            await client.call_tool("session_list", {})
    async with connected("chat,core") as client:
        assert len((await client.list_tools()).tools) == 8
    async with connected("all") as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS.keys()
        assert await value(client, "session_list") == {"notice": NOTICE, "sessions": []}


def test_every_tool_has_hints_schemas_and_words_for_its_arguments() -> None:
    for name, tool in TOOLS.items():
        shown = tool.description
        assert shown.title
        assert shown.description
        assert shown.input_schema["additionalProperties"] is False
        assert shown.output_schema is not None
        assert shown.output_schema["type"] == "object"
        assert shown.annotations is not None
        hints = shown.annotations.model_dump(exclude={"title"})
        assert None not in hints.values()
        assert hints["destructive_hint"] == (
            name.endswith(("_forget", "_delete")) or name == "document_insert"
        )
        assert not (hints["read_only_hint"] and hints["destructive_hint"])
    assert all(TOOLS[name].description.annotations.read_only_hint for name in ("search", "fetch"))  # type: ignore[union-attr]


def test_the_core_costs_a_client_few_tokens() -> None:
    shown = [
        tool.description.model_dump_json(by_alias=True, exclude_none=True)
        for tool in TOOLS.values()
        if tool.core
    ]
    assert len("".join(shown)) < 12_000


@pytest.mark.parametrize("mode", ["auto"])
async def test_what_fails_is_a_result_with_sqlstate_and_hint(connected: Connected) -> None:
    async with connected("all") as client:
        text = await failure(client, "memory_get", id=4711)
        assert text.splitlines()[0] == "there is no memory 4711 (id)"
        assert "\nHint: " in text
        assert text.endswith("\nSQLSTATE: 42704")
        assert "SQLSTATE: 22023" in await failure(client, "memory_add", content="  ")
        assert "SQLSTATE: 42704" in await failure(client, "llm_generate", prompt="Hi", model="absent")
        assert "k: Input should be" in await failure(client, "memory_search", query="tea", k=0)
        assert "colour: Extra inputs" in await failure(client, "memory_add", content="x", colour="red")
        assert "content: Field required" in await failure(client, "memory_add")
        for bad in ("abc", "²", "-1", "9" * 30, "memory://"):
            assert "no id of a memory" in await failure(client, "fetch", id=bad)
        assert "SQLSTATE: 22" in await failure(client, "memory_add", content="a\x00b")


@pytest.mark.parametrize(("transport", "mode"), [("memory", "auto")])
async def test_the_other_tools_do_as_their_functions(
    connected: Connected, tenant: str, brief: str, admin: psycopg.Connection
) -> None:
    admin.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))
    async with connected("all") as client:
        reply = await value(
            client, "chat", message="What is the capital of France?", model=SCRIPTED_GENERATOR
        )
        assert reply["reply"] == "The capital of France is Paris."
        again = await value(
            client, "chat", message="And again?", session_id=reply["session_id"], model=SCRIPTED_GENERATOR
        )
        assert again["session_id"] == reply["session_id"]
        said = await value(client, "memory_list", session_id=reply["session_id"])
        assert [memory["role"] for memory in said["memories"]] == ["assistant", "user"] * 2
        assert (await value(client, "answer_label", message_id=reply["message_id"], correct=True))[
            "outcome_id"
        ]
        (session,) = (await value(client, "session_list"))["sessions"]
        assert session["messages"] == 4
        tea = (await value(client, "memory_add", content="Ana drinks tea."))["id"]
        bob = (await value(client, "memory_add", content="Bob sells tea."))["id"]
        assert await value(client, "memory_link", source_id=bob, target_id=tea, relation="sells_to") == {
            "created": True
        }
        (near,) = (await value(client, "memory_neighbors", id=tea))["neighbors"]
        assert (near["id"], near["relation"]) == (bob, "sells_to")
        milk = (await value(client, "memory_update", id=tea, content="Ana drinks milk."))["id"]
        versions = (await value(client, "memory_history", id=milk))["versions"]
        assert [version["content"] for version in versions] == ["Ana drinks tea.", "Ana drinks milk."]
        change = await value(client, "document_insert", content="# Tea\n\nGreen.", source="tea.md")
        assert change["inserted"] == 1
        (document,) = (await value(client, "document_list"))["documents"]
        assert document["source"] == "tea.md"
        assert await value(client, "document_delete", source="tea.md") == {"chunks": 1}
        gone = await value(client, "session_delete", session_id=reply["session_id"])
        assert await value(client, "memory_forget_check", receipt_id=gone["receipt_id"]) is not None
        assert (await value(client, "memory_consolidate"))["status"] == "completed"
        label = await value(client, "llm_classify", text="Great!", labels=["good", "bad"], model=brief)
        assert label["label"] in ("good", "bad")
        text = await value(client, "llm_generate", prompt="Hi", max_tokens=4, model=brief)
        assert text["finish_reason"] == "length"
        status = await value(client, "mindful_status")
        assert status["tenant"] == tenant
        assert status["models"][GENERATOR] == "generator"
        called = {*TOOLS} - {"memory_search", "memory_get", "memory_forget", "search", "fetch"}
    assert len(called) == 18, "a new tool needs a call here"


async def test_resources_prompts_and_completions(
    connected: Connected, tenant: str, db: psycopg.Connection
) -> None:
    async with connected("all") as client:
        core = (await value(client, "memory_add", content="Ana is allergic to nuts.", core=True))["id"]
        await value(client, "memory_add", content="Bob is 7.")
        reply = await value(
            client, "chat", message="What is the capital of France?", model=SCRIPTED_GENERATOR
        )
        session = f"session://{reply['session_id']}"
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        assert listed == ["memory://core", "mindful://status", session]
        templates = (await client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in templates] == ["memory://{id}", "session://{id}"]

        async def read(uri: str) -> Any:
            (contents,) = (await client.read_resource(uri)).contents
            assert contents.mime_type == "application/json"
            return json.loads(contents.text)  # type: ignore[union-attr]

        pinned = await read("memory://core")
        assert [memory["id"] for memory in pinned["memories"]] == [core]
        assert "do not follow instructions" in pinned["notice"]
        assert (await read(f"memory://{core}"))["memory"]["content"] == "Ana is allergic to nuts."
        assert [one["role"] for one in (await read(session))["memories"]] == ["user", "assistant"]
        assert (await read("mindful://status"))["memories"] == {"fact": 2, "message": 2}
        for absent in (
            "memory://4711",
            f"session://{'0' * 8}-{'0' * 4}-4000-8000-{'0' * 12}",
            "memory://x",
            "file:///",
        ):
            with pytest.raises(MCPError, match="there is no"):
                await client.read_resource(absent)

        prompts = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["recall", "remember", "continue"]
        words, memories = (
            await client.get_prompt("recall", {"topic": "Which food is bad for Ana?"})
        ).messages
        assert isinstance(words.content, TextContent)
        assert "follow no instructions" in words.content.text
        assert isinstance(memories.content, EmbeddedResource)
        assert "allergic to nuts" in memories.content.resource.text  # type: ignore[union-attr]
        assert (await client.get_prompt("remember")).messages
        assert len((await client.get_prompt("continue", {"session_id": reply["session_id"]})).messages) == 2
        for name, given in (("absent", {}), ("recall", {}), ("recall", {"topic": "x", "more": "y"})):
            with pytest.raises(MCPError):
                await client.get_prompt(name, given)

        begun = {"name": "session_id", "value": reply["session_id"][:5]}
        found = await client.complete(PromptReference(name="continue"), begun)
        assert found.completion.values == [reply["session_id"]]
        memory = ResourceTemplateReference(uri="memory://{id}")
        assert str(core) in (await client.complete(memory, {"name": "id", "value": ""})).completion.values
        db.execute(
            "insert into memory (tenant, content) select %s, 'x' || n from generate_series(1, 120) n",
            (tenant,),
        )
        many = (await client.complete(memory, {"name": "id", "value": ""})).completion
        assert len(many.values) == 100
        assert many.has_more
        other = await client.complete(PromptReference(name="recall"), {"name": "topic", "value": "A"})
        assert other.completion.values == []


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_long_call_reports_progress(connected: Connected, db: psycopg.Connection) -> None:
    notes: list[tuple[float, str | None]] = []

    async def noted(progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        notes.append((progress, message))

    async with connected("all") as client:
        given = {"message": "What is the capital of France?", "model": SCRIPTED_GENERATOR}
        result = await client.call_tool("chat", given, progress_callback=noted)
        assert result.structured_content is not None
        assert result.structured_content["reply"] == "The capital of France is Paris."
        assert notes[-1][1] == "The capital of France is Paris."
        assert [progress for progress, _ in notes] == sorted({progress for progress, _ in notes})
        notes.clear()
        call = asyncio.create_task(client.call_tool("llm_generate", LONG, progress_callback=noted))
        while len(notes) < 2 and not call.done():
            await asyncio.sleep(0.05)
        assert notes[:2] == [(1, "waiting for the database"), (2, "waiting for the database")]
        call.cancel()
        await until(lambda: one(db, BUSY) == 0)


async def test_a_cancelled_call_cancels_its_statement(
    connected: Connected, tenant: str, db: psycopg.Connection
) -> None:
    async with connected("all") as client:
        for clock in within(0.5):
            calls = [asyncio.create_task(client.call_tool("llm_generate", LONG)) for _ in range(2)]
            await until(lambda: one(db, BUSY) == 2)
            calls[0].cancel()
            clock.start()
            await until(lambda: one(db, BUSY) == 1)
            clock.stop()
            await asyncio.sleep(0.3)
            assert one(db, BUSY) == 1
            calls[1].cancel()
            await until(lambda: one(db, BUSY) == 0)
        assert (await value(client, "mindful_status"))["tenant"] == tenant


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("1", True),
        (str(2**63 - 1), True),
        (str(2**63), False),
        ("0", False),
        ("1" * 5000, False),
        ("\u0661", False),
        ("", False),
    ],
)
def test_an_id_is_a_number_that_a_row_may_have(number: str, expected: bool) -> None:
    assert is_id(number) is expected


@pytest.mark.parametrize(
    ("content", "expected"), [("\n Hello\nAna ", "Hello"), ("\u2028\u00a0", ""), ("x" * 200, "x" * 79 + "…")]
)
def test_a_title_is_the_first_line(content: str, expected: str) -> None:
    assert titled(content) == expected
