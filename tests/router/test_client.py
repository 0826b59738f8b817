"""The client and the service work through a router unchanged; their streams run on the partition."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator

import httpx2
import pytest
from mindful_client import AsyncClient, Client, Partitions
from mindful_client.errors import NotReadyError
from mindful_client.partition import change
from mindful_serve.settings import Settings
from psycopg_pool import ConnectionPool
from support import one
from support.routed import Routed
from support.running import running

STORY = "Tell me a long story."
AT_WORK = """
    select count(*) from pg_stat_activity
    where datname = %s and application_name in ('mindful_client', 'mindful_serve') and state <> 'idle'"""


def at_work(routed: Routed, database: str) -> int:
    """Count the clients that work in a database."""
    found: int = one(routed.connect(), AT_WORK, database)
    return found


@pytest.fixture
def tenant(routed: Routed) -> str:
    return routed.tenants(1, 4)[3]  # other tests count what the first have


@pytest.fixture
def client(routed: Routed, tenant: str) -> Iterator[Client]:
    with Client(routed.cluster.dsn(routed.router, routed.roles["application"]), tenant=tenant) as made:
        yield made


def test_calls_are_routed(routed: Routed, client: Client, tenant: str) -> None:
    made = client.memory_insert("I like tea.")
    assert [memory.content for memory in client.memory_recall("tea")] == ["I like tea."]
    assert one(routed.partition(1), "select tenant from mindful.memory where id = %s", made) == tenant
    assert client.llm_chat_detail("Hello", max_tokens=4).reply
    assert len(client.llm_embed_many(["a", "b"]) or []) == 2


def test_a_stream_runs_on_the_partition_and_gives_pieces_as_they_are_made(
    routed: Routed, client: Client
) -> None:
    place = routed.atlas.place(1)
    pieces = client.llm_generate_stream(STORY, max_tokens=300)
    next(pieces)
    assert at_work(routed, place.dbname) == 1
    assert at_work(routed, routed.router) == 0
    assert client.llm_token_count("The client is free for other calls.")
    pieces.close()
    assert at_work(routed, place.dbname) == 0
    assert "".join(client.chat_stream(client.session_start(), "Hello", max_tokens=4))


def test_a_pools_streams_run_on_the_partition_too(routed: Routed, tenant: str) -> None:
    dsn = routed.cluster.dsn(routed.router, routed.roles["application"])
    with ConnectionPool(dsn, min_size=0, max_size=1) as pool, Client(pool, tenant=tenant) as client:
        pieces = client.llm_generate_stream(STORY, max_tokens=300)
        next(pieces)
        assert at_work(routed, routed.atlas.place(1).dbname) == 1
        pieces.close()


def test_a_stream_within_a_transaction_stays_in_it(routed: Routed, tenant: str) -> None:
    with routed.cluster.connect(routed.router, routed.roles["application"]) as connection:
        client = Client(connection, tenant=tenant)
        with connection.transaction():
            assert list(client.llm_generate_stream("Hi", max_tokens=3))
            assert client.llm_token_count("Hi")


def test_the_asynchronous_client_streams_from_the_partition_and_is_cancelled_there(
    routed: Routed, tenant: str
) -> None:
    async def drawn() -> int:
        dsn = routed.cluster.dsn(routed.router, routed.roles["application"])
        async with AsyncClient(dsn, tenant=tenant) as client:
            pieces = client.llm_generate_stream(STORY, max_tokens=500)
            await anext(pieces)
            busy = at_work(routed, routed.atlas.place(1).dbname)
            await pieces.aclose()
            return busy

    assert asyncio.run(drawn()) == 1
    assert at_work(routed, routed.atlas.place(1).dbname) == 0


def test_a_user_streams_as_itself(routed: Routed) -> None:
    with Client(routed.cluster.dsn(routed.router, routed.roles["bob"])) as client:
        session_id = client.session_start()
        assert "".join(client.chat_stream(session_id, "Hello", max_tokens=4))
    number = one(routed.connect("bob"), "select number from partition_find()")
    written = "select array_agg(distinct tenant) from mindful.memory where session_id = %s"
    assert one(routed.partition(number), written, session_id) == [routed.roles["bob"]]


def test_where_the_partition_cannot_be_reached_a_stream_is_routed(
    routed: Routed, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    dsn = routed.cluster.dsn(routed.router, routed.roles["application"])
    with (
        caplog.at_level(logging.WARNING),
        Client(dsn, tenant=tenant, partitions=Partitions("user=nobody_at_all")) as client,
    ):
        for _ in range(2):
            assert list(client.llm_generate_stream("Hi", max_tokens=3))
    assert [record.message[:18] for record in caplog.records] == ["streams are routed"]


def test_a_move_waits_for_a_stream_and_loses_none_of_its_turns(own: Routed) -> None:
    (tenant,) = own.tenants(1)
    with Client(own.cluster.dsn(own.router, own.roles["application"]), tenant=tenant) as client:
        session_id = client.session_start()
        pieces = client.chat_stream(session_id, STORY, max_tokens=60)
        shown = next(pieces)
        target = own.cluster.dsn(own.prefix + "moved")
        move = threading.Thread(
            target=change.move, args=(own.servers, 1, target), kwargs={"tell": lambda _: None}
        )
        move.start()
        move.join(1.0)
        assert move.is_alive()
        shown += "".join(pieces)
        move.join(30)
        assert own.atlas.place(1).dbname == own.prefix + "moved"
        kept = own.partition(1).execute(
            "select content from mindful.memory where session_id = %s order by turn", (session_id,)
        )
        assert [text for (text,) in kept] == [STORY, shown.strip()]
        assert "".join(client.chat_stream(session_id, "Go on.", max_tokens=4))


def test_the_service_answers_through_a_router(routed: Routed, tenant: str) -> None:
    key = one(routed.connect("admin"), "select key_create('phone', tenant => %s)", tenant)
    settings = Settings(
        dsn=routed.cluster.dsn(routed.router, routed.roles["application"]), needs_key=True, connections=2
    )
    place = routed.atlas.place(1)
    with running(settings) as url, httpx2.Client(base_url=url, timeout=60) as http:
        http.headers["authorization"] = f"Bearer {key}"
        whole = http.post("/v1/embeddings", json={"model": "default", "input": "tea"})
        assert whole.status_code == 200, whole.text
        for model in ("default", "mindful/default"):
            body = {"model": model, "messages": [{"role": "user", "content": STORY}], "max_tokens": 40}
            answer = http.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            with http.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as response:
                lines = (line for line in response.iter_lines() if line)
                assert "choices" in json.loads(next(lines).removeprefix("data: "))
                assert at_work(routed, place.dbname) == 1
                rest = list(lines)
            assert rest[-1] == "data: [DONE]"
            assert len(rest) > 10
    assert one(routed.partition(1), "select count(*) from mindful.memory where tenant = %s", tenant) >= 4


def test_what_needs_the_partition_says_so(client: Client) -> None:
    with pytest.raises(NotReadyError, match="cannot be routed") as caught:
        client.memory_detach("pg_class")
    assert "Connect to the partition" in str(caught.value.hint)
