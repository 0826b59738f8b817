"""MCP over HTTP and standard input: keys, limits, what is refused, and what is left behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference
from serve.conftest import Service, Start, served
from serve.mcp_client import (
    ACCEPT,
    BUSY,
    ERAS,
    LONG,
    PING,
    TENANT,
    failure,
    over_http,
    parameters,
    until,
    value,
)
from support import SCRIPTED_GENERATOR
from support.clock import Deadline, within
from support.command import Command
from support.query import one


@pytest.mark.shares
@pytest.mark.parametrize("version", ERAS.values())
async def test_a_client_that_disconnects_cancels_its_statement(
    service: Service, db: psycopg.Connection, version: str
) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = {"name": "llm_generate", "arguments": LONG} | ({"_meta": meta} if version > "2026" else {})
    headers = {"mcp-protocol-version": version, "mcp-method": "tools/call", "mcp-name": "llm_generate"}
    headers |= ACCEPT | {"authorization": f"Bearer {service.key}"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    for clock in within(0.5):
        async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
            sent = asyncio.create_task(client.post(f"{service.url}/mcp?tools=all", json=body))
            await until(lambda: one(db, BUSY) == 1)
            sent.cancel()
            clock.start()
            await until(lambda: one(db, BUSY) == 0)


@pytest.mark.shares
async def test_one_client_cannot_cancel_anothers_call(service: Service, db: psycopg.Connection) -> None:
    """Two clients of one key, whose requests have the same numbers."""
    async with over_http(service, "legacy", "all") as first, over_http(service, "legacy", "all") as second:
        mine = asyncio.create_task(first.call_tool("llm_generate", LONG))
        await until(lambda: one(db, BUSY) == 1)
        others = asyncio.create_task(second.call_tool("llm_generate", LONG))
        await until(lambda: one(db, BUSY) == 2)
        others.cancel()
        await until(lambda: one(db, BUSY) == 1)
        await asyncio.sleep(0.3)
        assert not mine.done()
        mine.cancel()


@pytest.mark.shares
async def test_two_keys_never_see_each_others_rows(
    service: Service, mode: str, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    number, owner = {"legacy": "4711", "auto": "4712"}[mode], f"owner-{mode}"
    key, other_key = (one(admin, "select key_create('x', %s)", name) for name in (owner, f"other-{mode}"))
    async with (
        over_http(service, mode, "all", key) as mine,
        over_http(service, mode, "all", other_key) as other,
    ):
        secret = (await value(mine, "memory_add", content=f"The locker has the number {number}.", core=True))[
            "id"
        ]
        second = (await value(mine, "memory_add", content="The locker is blue."))["id"]
        reply = await value(mine, "chat", message=f"My number is {number}.", model=SCRIPTED_GENERATOR)
        await value(mine, "document_insert", content=f"Number {number}.", source="number.md")
        gone = await value(mine, "memory_forget", ids=[second])
        own = (await value(other, "memory_add", content="Nothing."))["id"]
        attempts: dict[str, dict[str, Any]] = {
            "memory_get": {"id": secret},
            "fetch": {"id": str(secret)},
            "memory_update": {"id": secret, "content": "x"},
            "memory_forget": {"ids": [secret]},
            "memory_history": {"id": secret},
            "memory_neighbors": {"id": secret},
            "memory_link": {"source_id": own, "target_id": secret, "relation": "knows"},
            "memory_forget_check": {"receipt_id": gone["receipt_id"]},
            "session_delete": {"session_id": reply["session_id"]},
            "chat": {"message": "Hi", "session_id": reply["session_id"], "model": SCRIPTED_GENERATOR},
            "answer_label": {"message_id": reply["message_id"], "correct": False},
            "document_delete": {"source": "number.md"},
        }
        for tool, arguments in attempts.items():
            assert "SQLSTATE: 42704" in await failure(other, tool, **arguments), tool
        for tool, arguments in {
            "memory_search": {"query": f"locker number {number}"},
            "search": {"query": f"locker number {number}"},
            "memory_list": {},
            "session_list": {},
            "document_list": {},
            "mindful_status": {},
        }.items():
            assert number not in json.dumps(await value(other, tool, **arguments)), tool
        assert (await value(other, "mindful_status"))["memories"] == {"fact": 1}
        for uri in (f"memory://{secret}", f"session://{reply['session_id']}"):
            with pytest.raises(MCPError):
                await other.read_resource(uri)
        for uri in ("memory://core", "mindful://status"):
            assert number not in str((await other.read_resource(uri)).contents)
        assert len((await other.list_resources()).resources) == 2
        assert number not in str(await other.get_prompt("recall", {"topic": "the number of the locker"}))
        with pytest.raises(MCPError):
            await other.get_prompt("continue", {"session_id": reply["session_id"]})
        begun = await other.complete(PromptReference(name="continue"), {"name": "session_id", "value": ""})
        assert begun.completion.values == []
    owners = db.execute(
        "select distinct tenant from memory where strpos(content, %s) > 0", (number,)
    ).fetchall()
    assert owners == [(owner,)]


@pytest.mark.shares
async def test_a_key_is_offered_what_its_scopes_allow(service: Service, admin: psycopg.Connection) -> None:
    key = one(admin, "select key_create('chats', 'customer-7', scopes => '{chat}')")
    async with over_http(service, "auto", "all", key) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["llm_generate", "llm_classify"]
        with pytest.raises(MCPError):
            await client.call_tool("memory_search", {"query": "tea"})
        for attempt in (client.list_resources(), client.read_resource("memory://core")):
            with pytest.raises(MCPError, match="does not have the scope memory"):
                await attempt


@pytest.mark.shares
def test_strangers_pages_of_the_web_and_large_bodies_are_refused(service: Service) -> None:
    assert service.post("/mcp", PING, headers=ACCEPT).status_code == 200
    answer = service.http.post("/mcp", json=PING, headers=ACCEPT)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    wrong = ACCEPT | {"authorization": "Bearer mk_wrong"}
    assert service.http.post("/mcp", json=PING, headers=wrong).status_code == 401
    for origin in ("https://example.org", "null", "http://127.0.0.1:1"):
        assert service.post("/mcp", PING, headers=ACCEPT | {"origin": origin}).status_code == 403
    assert service.post("/mcp", PING, headers=ACCEPT | {"origin": service.url}).status_code == 200
    assert service.post("/mcp", content=b"x" * (10 << 20), headers=ACCEPT).status_code == 413
    assert service.get("/mcp").status_code == 405
    assert service.get("/mcp").headers["allow"] == "POST"


@pytest.mark.shares
def test_without_keys_other_hosts_are_refused(dsn_of: Mapping[str, str]) -> None:
    with served(dsn_of["ana"], "none") as service:
        assert service.post("/mcp", PING, headers=ACCEPT).status_code == 200
        assert service.post("/mcp", PING, headers=ACCEPT | {"host": "example.org"}).status_code == 403
        assert service.post("/mcp", PING, headers=ACCEPT | {"x-forwarded-for": "10.0.0.1"}).status_code == 403


@pytest.mark.shares
def test_the_requests_of_a_key_are_limited(service: Service, admin: psycopg.Connection) -> None:
    key = one(admin, "select key_create('few', 'customer-7', requests_per_minute => 2)")
    headers = ACCEPT | {"authorization": f"Bearer {key}"}
    answers = [service.http.post("/mcp", json=PING, headers=headers) for _ in range(4)]
    assert answers[-1].status_code == 429
    assert answers[-1].headers["retry-after"]


@pytest.mark.shares
def test_no_body_makes_the_endpoint_fail(service: Service) -> None:
    bodies = [b"{", b"[]", b"[1]", b"\xff", b"[" * 100_000, b"null", b'{"jsonrpc": "2.0"}', b'{"id": {}}']
    odd = b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [1]}}'
    for version in (None, "2025-11-25", "2026-07-28", "x"):
        headers = ACCEPT | {"content-type": "application/json", "mcp-session-id": "x"}
        headers |= {"mcp-protocol-version": version} if version else {}
        for body in bodies:
            assert 400 <= service.post("/mcp", content=body, headers=headers).status_code < 500, (
                version,
                body,
            )
        assert service.post("/mcp", content=odd, headers=headers).status_code < 500
    assert service.post("/mcp", PING, headers=ACCEPT).status_code == 200


async def test_the_audit_names_the_tool_but_not_what_was_said(
    dsn_of: Mapping[str, str], key: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with served(dsn_of["application"], key, "--keys", stderr=log) as service:
        async with over_http(service, "auto") as client:
            await value(client, "memory_add", content="My secret is 4711.")
            await failure(client, "memory_add", content="4711", kind="4711")
            await failure(client, "fetch", id="secret 4711")
    entries = [
        json.loads(line.partition(": ")[2]) for line in log.read_text().splitlines() if "audit" in line
    ]
    calls = [entry for entry in entries if entry.get("tool")]
    assert [entry["tool"] for entry in calls] == ["memory_add", "memory_add", "fetch"]
    assert {(entry["path"], entry["tenant"], entry["status"]) for entry in calls} == {("/mcp", TENANT, 200)}
    assert "4711" not in log.read_text()


async def test_eight_processes_write_a_thousand_memories(
    dsn_of: Mapping[str, str], db: psycopg.Connection, queueing: None
) -> None:
    async def write(process: int) -> None:
        async with Client(parameters(dsn_of["application"]), mode="auto") as client:
            for number in range(125):
                await value(client, "memory_add", content=f"Process {process} wrote number {number}.")

    await asyncio.gather(*(write(process) for process in range(8)))
    counts = "select count(*), count(distinct content), min(tenant), max(tenant) from memory"
    assert db.execute(counts).fetchone() == (1000, 1000, TENANT, TENANT)


@pytest.mark.shares
def test_standard_output_holds_nothing_but_messages(dsn_of: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "mindful_client", "mcp"]
    lines = [
        b"not JSON",
        b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", '
        b'"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}',
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b'{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "memory_add", "arguments": {}}}',
        b'{"jsonrpc": "2.0", "id": 3, "method": "absent"}',
    ]
    with subprocess.Popen(
        command,
        env={**os.environ, "MINDFUL_DSN": dsn_of["ana"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n".join(lines) + b"\n")
        process.stdin.flush()
        answers: dict[int, Any] = {}
        while len(answers) < 3:
            message = json.loads(process.stdout.readline())
            assert message["jsonrpc"] == "2.0"
            if message.get("id"):
                answers[message["id"]] = message
        assert answers[1]["result"]["protocolVersion"] == "2025-11-25"
        assert answers[2]["result"]["isError"]
        assert answers[3]["error"]["code"] == -32601
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(60) == 0


@pytest.mark.shares
def test_a_client_that_ends_leaves_no_statement(dsn_of: Mapping[str, str], db: psycopg.Connection) -> None:
    call = {"name": "llm_generate", "arguments": LONG}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    line = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call | {"_meta": meta}}
    command = [sys.executable, "-m", "mindful_client", "mcp", "--tools", "all"]
    with subprocess.Popen(
        command,
        env={**os.environ, "MINDFUL_DSN": dsn_of["ana"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(line).encode() + b"\n")
        process.stdin.flush()
        end = Deadline()
        while one(db, BUSY) == 0:
            assert not end.passed()
            time.sleep(0.02)
        process.stdin.close()
        assert process.wait(60) == 0
    assert one(db, BUSY) == 0


async def test_a_database_that_goes_away_is_waited_for(
    dsn_of: Mapping[str, str], db: psycopg.Connection, database: str, cluster: Any
) -> None:
    async with Client(parameters(dsn_of["application"]), mode="auto") as client:
        await value(client, "memory_add", content="Ana lives in Oslo.")
        with cluster.connect() as root:
            root.execute(f'alter database "{database}" allow_connections false'.encode())
            root.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'mindful_serve'"
            )
            assert "cannot be reached" in await failure(client, "memory_get", id=1)
            assert len((await client.list_tools()).tools) == 7
            root.execute(f'alter database "{database}" allow_connections true'.encode())
        end = Deadline()
        while (await client.call_tool("memory_search", {"query": "Oslo"})).is_error:
            assert not end.passed()


@pytest.mark.shares
async def test_a_role_that_bypasses_row_level_security_reads_nothing(dsn: str) -> None:
    async with Client(parameters(dsn, "all")) as client:
        assert (await client.list_tools()).tools
        assert "bypasses row-level security" in await failure(client, "mindful_status")
        with pytest.raises(MCPError, match="bypasses row-level security"):
            await client.list_resources()


def test_an_unknown_tool_is_named_at_the_start() -> None:
    refused = Command("")("mcp", "--tools", "core,absent")
    assert refused.exit_code == 1
    assert "there is no tool absent" in refused.stderr
    assert "memory_add" in refused.stderr


def test_memory_of_the_service_is_not_used_for_mcp_before_it_is_asked_for(start: Start) -> None:
    service = start()
    loaded = Path(f"/proc/{service.process.pid}/maps")
    assert "pydantic_core" in loaded.read_text()
    assert "cryptography" not in loaded.read_text()
    assert service.post("/mcp", PING, headers=ACCEPT).status_code == 200
    assert "cryptography" in loaded.read_text()
