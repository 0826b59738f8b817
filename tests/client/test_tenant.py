"""Clients that act for a tenant: each call for its own, whoever had the connection before."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, closing
from typing import Any

import psycopg
import pytest
from mindful_client import (
    AsyncClient,
    Client,
    InvalidInputError,
    NotAllowedError,
    NotReadyError,
    QueryCancelledError,
)
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from support import SCRIPTED_GENERATOR
from support.command import Command
from support.pooler import pgbouncer

TENANTS = ("customer-7", "customer-8")
ROUNDS = 20

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture
def dsn(dsn_of: Mapping[str, str]) -> str:
    """The application's connection string."""
    return dsn_of["application"]


@pytest.fixture
def over(dsn: str) -> Iterator[str]:
    """The application's connection string over PgBouncer, with one connection to the server for all."""
    with pgbouncer([dsn]) as (found,):
        yield found


def remembered(db: psycopg.Connection) -> dict[str, list[str]]:
    return dict(
        db.execute("select tenant, array_agg(content order by id) from memory group by tenant").fetchall()
    )


def use(client: Client, tenant: str) -> None:
    """Write, read, chat and stream."""
    client.memory_insert(f"The order of {tenant} is late.")
    assert {memory.content for memory in client.memory_recall("order", kinds=["fact"])} == {
        f"The order of {tenant} is late."
    }
    session_id = client.session_start()
    client.chat(session_id, f"I am {tenant}.", model=SCRIPTED_GENERATOR)
    assert list(client.chat_stream(session_id, f"Still {tenant}.", model=SCRIPTED_GENERATOR))


def assert_apart(db: psycopg.Connection) -> None:
    found = remembered(db)
    assert set(found) == set(TENANTS)
    for tenant, contents in found.items():
        assert f"I am {tenant}." in contents
        assert not [text for text in contents for other in TENANTS if other != tenant and other in text]


@pytest.mark.parametrize("target", ["dsn", "connection", "autocommit connection", "pool"])
def test_calls_of_a_client_are_its_tenants(dsn: str, db: psycopg.Connection, target: str) -> None:
    with ExitStack() as opened:
        shared: Any = dsn
        if target.endswith("connection"):
            shared = opened.enter_context(psycopg.connect(dsn, autocommit=target.startswith("auto")))
        elif target == "pool":
            shared = opened.enter_context(ConnectionPool(dsn, min_size=1, max_size=1, open=False))
        for tenant in TENANTS * 2:
            with Client(shared, tenant=tenant) as client:
                if tenant in remembered(db):
                    assert len(client.memory_recall("order", kinds=["fact"])) == 1
                else:
                    use(client, tenant)
            with Client(shared) as client:
                assert client.memory_recall("order") == []
                assert client.memory_recall("order", kinds=["fact"]) == []
                with pytest.raises(NotReadyError, match="no tenant is set"):
                    client.memory_insert("Whose is this?")
    assert_apart(db)


@pytest.mark.parametrize("target", ["dsn", "connection", "pool"])
async def test_calls_of_an_async_client_are_its_tenants(
    dsn: str, db: psycopg.Connection, target: str
) -> None:
    async def use_async(client: AsyncClient, tenant: str) -> None:
        await client.memory_insert(f"The order of {tenant} is late.")
        session_id = await client.session_start()
        await client.chat(session_id, f"I am {tenant}.", model=SCRIPTED_GENERATOR)
        async with aclosing(
            client.chat_stream(session_id, f"Still {tenant}.", model=SCRIPTED_GENERATOR)
        ) as pieces:
            assert [piece async for piece in pieces]
        assert len(await client.memory_recall("order", kinds=["fact"])) == 1

    if target == "pool":
        async with AsyncConnectionPool(dsn, min_size=1, max_size=1, open=False) as pool:
            await asyncio.gather(*(use_async(AsyncClient(pool, tenant=tenant), tenant) for tenant in TENANTS))
    for tenant in TENANTS if target != "pool" else ():
        if target == "dsn":
            async with AsyncClient(dsn, tenant=tenant) as client:
                await use_async(client, tenant)
        else:
            async with await psycopg.AsyncConnection.connect(dsn) as connection:
                await use_async(AsyncClient(connection, tenant=tenant), tenant)
    assert_apart(db)


def test_threads_that_share_a_connection_do_not_share_a_transaction(dsn: str, db: psycopg.Connection) -> None:
    with Client(dsn, tenant="customer-7") as client, ThreadPoolExecutor(8) as threads:
        # Some fail, and take no other's memory with them.
        def insert(number: int) -> bool:
            try:
                client.memory_insert(f"Number {number}." if number % 3 else "")
            except InvalidInputError:
                return False
            return True

        kept = list(threads.map(insert, range(60)))
    assert len(remembered(db)["customer-7"]) == sum(kept) == 40


async def test_tasks_that_share_a_connection_do_not_share_a_transaction(
    dsn: str, db: psycopg.Connection
) -> None:
    async with AsyncClient(dsn, tenant="customer-7") as client:
        done = await asyncio.gather(
            *(client.memory_insert(f"Number {number}." if number % 3 else "") for number in range(30)),
            return_exceptions=True,
        )
    assert len(remembered(db)["customer-7"]) == sum(isinstance(one, int) for one in done) == 20


def test_a_transaction_of_the_callers_keeps_its_tenant(dsn: str, db: psycopg.Connection) -> None:
    with psycopg.connect(dsn) as connection:
        seven, eight = (Client(connection, tenant=tenant) for tenant in TENANTS)
        with connection.transaction():
            connection.execute("set local mindful.tenant = 'customer-9'")
            seven.memory_insert("Seven's.")
            with closing(eight.llm_generate_stream("capital of France", model=SCRIPTED_GENERATOR)) as pieces:
                next(pieces)
                with pytest.raises(NotReadyError, match="still being streamed"):
                    eight.memory_insert("Within the stream.")
            with pytest.raises(InvalidInputError), connection.transaction():
                eight.memory_insert("")
            eight.memory_insert("Eight's.")
            connection.execute("select mindful.memory_insert('The caller''s.')")
    assert remembered(db) == {
        "customer-7": ["Seven's."],
        "customer-8": ["Eight's."],
        "customer-9": ["The caller's."],
    }


def test_a_role_that_is_no_application_has_no_tenants(
    dsn: str, dsn_of: Mapping[str, str], ana: psycopg.Connection
) -> None:
    with (
        Client(dsn_of["ana"], tenant="customer-7") as client,
        pytest.raises(NotAllowedError, match="cannot act for the tenant") as caught,
    ):
        client.memory_insert("Whose is this?")
    assert "mindful_application" in str(caught.value.hint)
    with Client(dsn, tenant=ana.info.user) as client, pytest.raises(NotAllowedError, match="another role"):
        client.memory_recall("order")
    with pytest.raises(InvalidInputError):
        Client(dsn, tenant="")


def test_a_plain_set_over_a_pooler_serves_others(over: str) -> None:
    """What the documentation warns of: were this to change, the warning could go."""
    with psycopg.connect(over, autocommit=True) as one, psycopg.connect(over, autocommit=True) as other:
        one.execute("set mindful.tenant = 'customer-7'")
        row = other.execute("select current_setting('mindful.tenant', true)").fetchone()
        assert row == ("customer-7",)


@pytest.mark.parametrize("target", ["dsn", "connection", "pool"])
def test_clients_over_a_pooler_in_transaction_mode(over: str, db: psycopg.Connection, target: str) -> None:
    with ExitStack() as opened:
        clients: dict[str, Client] = {}
        for tenant in TENANTS:
            shared: Any = over
            if target == "connection":
                shared = opened.enter_context(psycopg.connect(over))
            elif target == "pool":
                shared = opened.enter_context(ConnectionPool(over, min_size=2, max_size=2, open=False))
            clients[tenant] = opened.enter_context(Client(shared, tenant=tenant))
            use(clients[tenant], tenant)
        # One connection to the server serves all: psycopg would prepare what it runs so often.
        for _ in range(ROUNDS):
            for tenant, client in clients.items():
                (found,) = client.memory_recall("order", kinds=["fact"])
                assert found.content == f"The order of {tenant} is late."
        with pytest.raises(NotReadyError, match="no tenant is set"), Client(over) as without:
            without.memory_insert("Whose is this?")
    assert_apart(db)


async def test_async_clients_over_a_pooler_at_the_same_time(over: str, db: psycopg.Connection) -> None:
    async def serve(tenant: str) -> None:
        async with AsyncConnectionPool(over, min_size=2, max_size=2, open=False) as pool:
            client = AsyncClient(pool, tenant=tenant)
            await client.memory_insert(f"I am {tenant}.")
            for _ in range(ROUNDS):
                found, _ = await asyncio.gather(
                    client.memory_recall("I am"),
                    client.llm_generate("capital of France", model=SCRIPTED_GENERATOR),
                )
                assert [memory.content for memory in found] == [f"I am {tenant}."]

    await asyncio.gather(*map(serve, TENANTS))
    assert_apart(db)


def test_a_stream_over_a_pooler_is_left_early(over: str, db: psycopg.Connection) -> None:
    with Client(over, tenant="customer-7") as seven, Client(over, tenant="customer-8") as eight:
        session_id = seven.session_start()
        with closing(seven.chat_stream(session_id, "I am customer-7.", model=SCRIPTED_GENERATOR)) as pieces:
            next(pieces)
        eight.memory_insert("I am customer-8.")
    assert_apart(db)


def test_a_cancel_over_a_pooler(over: str) -> None:
    with Client(over, tenant="customer-7") as client, ThreadPoolExecutor(1) as thread:
        answering = thread.submit(client.llm_generate, "Tell me a long story about a fox.", max_tokens=2000)
        while not answering.done():
            client.cancel()
            time.sleep(0.05)
        with pytest.raises(QueryCancelledError):
            answering.result()
        client.memory_insert("The client can be used on.")


def test_the_command_line_takes_a_tenant(dsn: str, db: psycopg.Connection, tmp_path: Any) -> None:
    mindful = Command(dsn)
    for tenant in TENANTS:
        assert mindful("--tenant", tenant, "remember", f"I am {tenant}.").exit_code == 0
    found = json.loads(mindful("--tenant", "customer-7", "recall", "I am", "--json").stdout)
    assert [memory["content"] for memory in found] == ["I am customer-7."]
    refused = mindful("remember", "Whose is this?")
    error, hint = refused.stderr.splitlines()
    assert (refused.exit_code, error) == (1, "mindful: no tenant is set")
    assert "--tenant" in hint
    exported = tmp_path / "exported"
    assert mindful("--tenant", "customer-7", "export", exported).exit_code == 0
    assert "I am customer-7." in exported.read_text()
    assert "customer-8" not in exported.read_text()
    assert mindful("--tenant", "customer-9", "import", exported).exit_code == 0
    assert set(remembered(db)) == {*TENANTS, "customer-9"}
    worked = mindful("--tenant", "customer-7", "worker", "--once")
    assert worked.exit_code == 0, worked.stderr
