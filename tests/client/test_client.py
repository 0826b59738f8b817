"""What a client promises, of the sync and the async one alike: over a DSN, a connection and a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, closing
from uuid import UUID

import psycopg
import pytest
from mindful_client import (
    AlreadyExistsError,
    AsyncClient,
    Client,
    InvalidInputError,
    LabelDetail,
    NotFoundError,
    NotReadyError,
    QueryCancelledError,
    UnavailableError,
)
from psycopg_pool import ConnectionPool
from support import SCRIPTED_GENERATOR
from support.clock import TRIES, Deadline

STORY = "Tell me a long story about a fox that wants to cross a river."


def turns(connection: psycopg.Connection, session_id: UUID) -> list[tuple[str, str]]:
    return connection.execute(
        "select role, content from conversation where session_id = %s order by turn", (session_id,)
    ).fetchall()


def generations(connection: psycopg.Connection) -> int:
    row = connection.execute("select count(*) from generation").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.shares
async def test_models_answer_embed_and_count(client: AsyncClient) -> None:
    answer = await client.llm_generate("capital of France", model=SCRIPTED_GENERATOR, stop=["Paris"])
    assert answer == "The capital of France is "
    detail = await client.llm_generate_detail(
        "capital of France", model=SCRIPTED_GENERATOR, max_tokens=2, temperature=0.5, seed=1
    )
    assert detail is not None
    assert (detail.text, detail.finish_reason, detail.signals["tokens"]) == ("The capital", "length", 2)
    pieces = [
        piece async for piece in client.llm_generate_stream("capital of France", model=SCRIPTED_GENERATOR)
    ]
    assert "".join(pieces) == "The capital of France is Paris."
    assert len(pieces) == 6
    vector = await client.llm_embed("a cat")
    assert vector is not None
    assert len(vector) == 64
    assert sum(number * number for number in vector) == pytest.approx(1, abs=1e-3)
    many = await client.llm_embed_many(["a cat", None])
    assert many is not None
    assert many[0] == pytest.approx(vector, abs=1e-3)
    assert many[1] is None
    assert await client.llm_token_count("one two", model=SCRIPTED_GENERATOR) == 2


@pytest.mark.shares
async def test_null_gives_none(client: AsyncClient) -> None:
    assert await client.llm_generate(None) is None
    assert await client.llm_generate_detail(None) is None
    assert [piece async for piece in client.llm_generate_stream(None)] == []
    assert await client.llm_embed(None) is None
    assert await client.llm_embed_many(None) is None
    assert await client.llm_token_count(None) is None


async def test_memories_are_committed_and_recalled(client: AsyncClient, ana: psycopg.Connection) -> None:
    first = await client.memory_insert(
        "The cat is called Tom.", metadata={"topic": "pets"}, source="a", source_key="b"
    )
    more = await client.memory_insert_many([{"content": "Lisbon lies by the sea.", "kind": "document"}])
    assert ana.execute("select array_agg(id order by id) from memory").fetchone() == ([first, *more],)
    (found,) = await client.memory_recall("What is the cat called?", k=1)
    assert (found.id, found.content, found.kind, found.metadata) == (
        first,
        "The cat is called Tom.",
        "fact",
        {"topic": "pets"},
    )
    assert [memory.id for memory in await client.memory_recall("sea", kinds=("document",))] == more


async def test_tables_are_attached_and_detached(
    client: AsyncClient, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    db.execute(f"grant create on schema public to {ana.info.user}")
    ana.execute("create table public.ticket (id int primary key, subject text)")
    ana.execute("insert into public.ticket values (1, 'The printer is on fire')")
    assert await client.memory_attach("public.ticket", "subject") == 1
    (found,) = await client.memory_recall("printer")
    assert found.source == "public.ticket"
    assert await client.memory_detach("public.ticket") == 1


@pytest.mark.shares
async def test_a_chat_is_stored_and_reviewed(client: AsyncClient, ana: psycopg.Connection) -> None:
    session_id = await client.session_start(title="France", system_prompt="Be brief.", metadata={"a": 1})
    assert isinstance(session_id, UUID)
    question = "What is the capital of France?"
    detail = await client.chat(session_id, question, model=SCRIPTED_GENERATOR, memories=0)
    assert (detail.reply, detail.session_id) == ("The capital of France is Paris.", session_id)
    assert turns(ana, session_id) == [("user", question), ("assistant", detail.reply)]
    review = await client.self_review(detail.message_id, model=SCRIPTED_GENERATOR)
    assert (review.verdict, 0 <= review.score <= 1) == ("supported", True)


@pytest.mark.shares
async def test_an_inserted_message_is_answered(client: AsyncClient, ana: psycopg.Connection) -> None:
    session_id = await client.session_start()
    ids = await client.message_insert_many(session_id, [{"role": "user", "content": "Hello."}])
    ids.append(await client.message_insert(session_id, "user", "capital of France?", metadata={"via": "web"}))
    parts = await client.session_context(session_id, memories=0)
    assert [(part.part, part.content) for part in parts[1:]] == [
        ("turn", "Hello."),
        ("message", "capital of France?"),
    ]
    reply = await client.llm_chat(None, session_id=session_id, model=SCRIPTED_GENERATOR)
    detail = await client.llm_chat_detail("And again?", session_id=session_id, model=SCRIPTED_GENERATOR)
    pieces = [
        piece
        async for piece in client.llm_chat_stream(
            "Once more?", session_id=session_id, model=SCRIPTED_GENERATOR
        )
    ]
    replies = [content for role, content in turns(ana, session_id) if role == "assistant"]
    assert replies == [reply, detail.reply, "".join(pieces)]


@pytest.mark.shares
async def test_labels_come_in_the_order_of_the_texts(client: AsyncClient) -> None:
    found = await client.llm_classify_many(["a", None], ["Yes", "No"], model=SCRIPTED_GENERATOR)
    assert found is not None
    first, second = found
    assert first is not None
    assert sum(first.probabilities.values()) == pytest.approx(1)
    assert first.probability == pytest.approx(first.probabilities[first.label], abs=1e-6)
    assert second is None
    assert await client.llm_classify_many(None, ["Yes", "No"]) is None


@pytest.mark.shares
async def test_with_on_error_each_text_has_its_own_error(client: AsyncClient) -> None:
    texts = ["a", " ", None]
    labeled = await client.llm_classify_many(texts, ["Yes", "No"], on_error="null", model=SCRIPTED_GENERATOR)
    true = await client.llm_if_many(texts, "It is a letter.", on_error="null", model=SCRIPTED_GENERATOR)
    embedded = await client.llm_embed_many(texts, on_error="null")
    first = labeled[0].result
    assert isinstance(first, LabelDetail)
    assert sum(first.probabilities.values()) == pytest.approx(1)
    assert isinstance(true[0].result, bool)
    assert embedded[0].result == await client.llm_embed("a")
    for outcomes in (labeled, true, embedded):
        assert [outcome.number for outcome in outcomes] == [1, 2, 3]
        assert [outcome.result for outcome in outcomes[1:]] == [None, None]
        assert [outcome.error and outcome.error["sqlstate"] for outcome in outcomes] == [None, "22023", None]
    with pytest.raises(InvalidInputError):
        await client.llm_embed_many(texts, on_error="raise")


@pytest.mark.shares
async def test_with_on_error_prompts_that_do_not_fit_cost_their_own_answer(client: AsyncClient) -> None:
    prompts = ["capital of France", "word " * 100_000, None]
    answers = await client.llm_generate_many(prompts, on_error="null", model=SCRIPTED_GENERATOR)
    assert [answer.result for answer in answers] == ["The capital of France is Paris.", None, None]
    assert [answer.error is None for answer in answers] == [True, False, True]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    (found,) = await client.llm_extract_many(["x"], schema, on_error="null", model=SCRIPTED_GENERATOR)
    assert (found.result is None) != (found.error is None)


@pytest.mark.shares
async def test_status_and_models(client: AsyncClient) -> None:
    await client.llm_generate("hi", model=SCRIPTED_GENERATOR)
    status = await client.mindful_status()
    assert status.extension_version == status.package_version
    assert [model["name"] for model in status.models] == [SCRIPTED_GENERATOR]
    assert await client.model_unload() == 1


async def test_an_administrator_registers_a_model(dsn_of: Mapping[str, str]) -> None:
    async with AsyncClient(dsn_of["admin"]) as client:
        name = await client.model_register(
            "parrot", "generator", "scripted", "", options={"default": "Hello!"}
        )
        assert name == "parrot"
        with pytest.raises(AlreadyExistsError):
            await client.model_register("parrot", "generator", "scripted", "")
        await client.model_default_set("parrot")
    async with AsyncClient(dsn_of["ana"]) as client:
        assert await client.llm_generate("hi") == "Hello!"


@pytest.mark.shares
async def test_a_cancelled_answer_loses_no_word_and_can_be_asked_again(
    client: AsyncClient, ana: psycopg.Connection
) -> None:
    session_id, before = await client.session_start(), generations(ana)

    async def read() -> None:
        async with aclosing(client.chat_stream(session_id, STORY)) as pieces:
            async for _ in pieces:
                first.set()

    first = asyncio.Event()
    reading = asyncio.create_task(read())
    while not reading.done():
        if first.is_set():
            await client.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(QueryCancelledError) as caught:
        await reading
    assert caught.value.sqlstate == "57014"
    assert turns(ana, session_id) == [("user", STORY)]
    assert generations(ana) == before

    reply = await client.llm_chat(None, session_id=session_id, max_tokens=5)
    assert turns(ana, session_id) == [("user", STORY), ("assistant", reply)]


@pytest.mark.shares
@pytest.mark.parametrize("reply", ["The", "The capital of France is Paris."])
async def test_a_cancel_between_two_pieces_ends_the_stream_at_the_next(
    client: AsyncClient, ana: psycopg.Connection, reply: str
) -> None:
    session_id, read = await client.session_start(), ""
    question = "What is the capital of France?"
    async with aclosing(client.chat_stream(session_id, question, model=SCRIPTED_GENERATOR)) as pieces:
        while not read.startswith(reply):
            read += await anext(pieces)
        await client.cancel()
        with pytest.raises(QueryCancelledError) as caught:
            await anext(pieces)
    assert caught.value.sqlstate == "57014"
    assert turns(ana, session_id) == [("user", question)]
    assert await client.llm_chat(None, session_id=session_id, model=SCRIPTED_GENERATOR)


@pytest.mark.shares
async def test_a_call_without_a_stream_is_cancelled(client: AsyncClient, ana: psycopg.Connection) -> None:
    session_id = await client.session_start()
    answering = asyncio.create_task(client.chat(session_id, STORY))
    while not turns(ana, session_id):
        await asyncio.sleep(0.01)
    while not answering.done():
        await client.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(QueryCancelledError):
        await answering
    assert turns(ana, session_id) == [("user", STORY)]


@pytest.mark.shares
async def test_a_stream_that_is_closed_early_stops_there(
    client: AsyncClient, ana: psycopg.Connection
) -> None:
    session_id, before = await client.session_start(), generations(ana)
    async with aclosing(client.chat_stream(session_id, STORY)) as pieces:
        async for piece in pieces:
            assert piece
            break
    assert turns(ana, session_id) == [("user", STORY)]
    assert generations(ana) == before
    await client.memory_insert("The client can be used on.")


@pytest.mark.usefixtures("quick")
async def test_a_cancelled_task_cancels_its_call(dsn_of: Mapping[str, str], ana: psycopg.Connection) -> None:
    async with AsyncClient(dsn_of["ana"]) as client:
        for _ in range(TRIES):  # on a busy machine the answer may come before the cancel
            session_id = await client.session_start()
            answering = asyncio.create_task(client.chat(session_id, STORY))
            while not turns(ana, session_id):
                await asyncio.sleep(0.01)
            before = generations(ana)
            if answering.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await answering
                if len(turns(ana, session_id)) == 1:
                    break
        assert (turns(ana, session_id), generations(ana)) == ([("user", STORY)], before)
        await client.memory_insert("The client can be used on.")


def test_the_first_piece_comes_before_the_last_is_made(ana: psycopg.Connection) -> None:
    # Within one transaction a finished generation would be seen: its row is written after the last token.
    with ana.transaction(), closing(Client(ana).llm_generate_stream(STORY, max_tokens=20)) as pieces:
        assert next(pieces)
        assert generations(ana) == 0
        assert len(list(pieces)) > 5
        assert generations(ana) == 1


@pytest.mark.usefixtures("quick")
def test_a_transaction_of_the_callers_is_left_to_it(
    dsn_of: Mapping[str, str], ana: psycopg.Connection
) -> None:
    with psycopg.connect(dsn_of["ana"]) as connection:
        client = Client(connection)
        kept = client.session_start()
        with connection.transaction(force_rollback=True):
            list(client.chat_stream(kept, "capital of France?", model=SCRIPTED_GENERATOR))
            client.memory_insert("A passing thought.")
            assert len(turns(connection, kept)) == 2
        assert turns(ana, kept) == []
        with (
            connection.transaction(),
            closing(client.llm_generate_stream("hi", model=SCRIPTED_GENERATOR)) as pieces,
        ):
            assert next(pieces)
            client.memory_insert("A thought that stays.")
        assert ana.execute("select content from memory").fetchall() == [("A thought that stays.",)]
        connection.execute("select 1")
        client.memory_insert("A thought on trial.")
        connection.rollback()
    assert ana.execute("select content from memory").fetchall() == [("A thought that stays.",)]


@pytest.mark.usefixtures("quick")
def test_a_connections_own_settings_change_nothing(dsn_of: Mapping[str, str]) -> None:
    with psycopg.connect(dsn_of["ana"], row_factory=psycopg.rows.dict_row) as connection:
        connection.execute("set search_path = pg_catalog")
        connection.commit()
        client = Client(connection)
        assert client.memory_recall("cat") == []
        assert len(list(client.llm_generate_stream("capital of France", model=SCRIPTED_GENERATOR))) == 6


@pytest.mark.usefixtures("quick")
def test_a_call_beside_a_stream_is_refused_on_its_connection(dsn_of: Mapping[str, str]) -> None:
    with (
        Client(dsn_of["ana"]) as client,
        closing(client.llm_generate_stream("hi", model=SCRIPTED_GENERATOR)) as pieces,
    ):
        next(pieces)
        with pytest.raises(NotReadyError, match="still being streamed"):
            client.memory_insert("It would be undone with the stream.")
        list(pieces)
        client.memory_insert("Now it is kept.")
    with ConnectionPool(dsn_of["ana"], min_size=1, max_size=2, open=False) as pool:
        client = Client(pool)
        with closing(client.llm_generate_stream("hi", model=SCRIPTED_GENERATOR)) as pieces:
            next(pieces)
            client.memory_insert("So is this.")
        assert len(client.memory_recall("kept")) == 2


@pytest.mark.usefixtures("quick")
def test_another_tenants_session_is_not_found(dsn_of: Mapping[str, str], db: psycopg.Connection) -> None:
    with Client(dsn_of["ana"]) as ana, Client(dsn_of["bob"]) as bob:
        session_id = ana.session_start()
        ana.message_insert(session_id, "user", "The code is 4711.")
        with pytest.raises(NotFoundError):
            bob.chat(session_id, "What is the code?")
        with pytest.raises(NotFoundError):
            bob.llm_chat(None, session_id=session_id)
        assert [turn[1] for turn in turns(db, session_id)] == ["The code is 4711."]
        assert bob.memory_recall("code") == []
        with pytest.raises(NotReadyError, match="waits for an answer"):
            list(bob.llm_chat_stream(None, session_id=bob.session_start()))


@pytest.mark.usefixtures("quick")
def test_a_lost_connection_is_reported_once_and_replaced(
    dsn_of: Mapping[str, str], db: psycopg.Connection
) -> None:
    with Client(dsn_of["ana"]) as client:
        pid = client.mindful_status().backend_pid
        db.execute("select pg_terminate_backend(%s)", (pid,))
        deadline = Deadline()
        while db.execute("select from pg_stat_activity where pid = %s", (pid,)).rowcount:
            assert not deadline.passed()
        with pytest.raises(UnavailableError):
            client.memory_insert("Nobody hears this.")
        assert client.memory_recall("hears") == []
        assert client.mindful_status().backend_pid != pid


def test_a_client_closes_only_what_it_opened(dsn_of: Mapping[str, str], db: psycopg.Connection) -> None:
    def connections() -> int:
        return db.execute(
            """select from pg_stat_activity
               where datname = current_database() and application_name = 'mindful_client'"""
        ).rowcount

    with Client(dsn_of["ana"]) as client:
        assert connections() == 0
        client.mindful_status()
        assert connections() == 1
    deadline = Deadline()
    while connections():
        assert not deadline.passed()
    with psycopg.connect(dsn_of["ana"]) as connection:
        with Client(connection) as client:
            client.mindful_status()
        assert not connection.closed
