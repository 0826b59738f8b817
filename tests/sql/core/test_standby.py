"""A streaming standby answers all that only reads; writers name the primary; a promotion loses no acknowledged turn."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import httpx2
import psycopg
import pytest
from mindful_client import Client
from mindful_client._methods import READS
from mindful_client.errors import MindfulError
from mindful_serve.settings import Settings
from support import fails, one
from support.clock import Deadline
from support.replicated import Pair, pair
from support.running import running

ANSWERED = {"key_use", "llm_stream", "model_unload", "slot_status", "tenant_set"}
"""Volatile functions that a standby answers, and that no client sends there."""
FUNCTIONS = """
    select p.oid::regprocedure::text, p.proname::text, p.provolatile = 'v',
        array(select format_type(t, null) from unnest(p.proargtypes) t)
    from pg_proc p
    where p.pronamespace = 'mindful'::regnamespace and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
    order by 1"""


@pytest.fixture(scope="module")
def replicated() -> Iterator[Pair]:
    with pair() as made:
        with Client(made.dsn(0)) as client:
            client.memory_insert("I like tea.")
            session_id = client.session_start()
            client.llm_chat("Hello, I am Ana.", session_id=session_id, max_tokens=4)
            client.llm_generate("Hi", max_tokens=2)  # A result is kept in an unlogged table.
        made.caught_up()
        yield made


@pytest.fixture
def standby(replicated: Pair) -> Iterator[psycopg.Connection]:
    with psycopg.connect(replicated.dsn(1), autocommit=True) as connection:
        yield connection


def test_each_function_answers_or_names_the_primary(standby: psycopg.Connection) -> None:
    wrong, written = {}, 0
    for signature, name, is_volatile, types in standby.execute(FUNCTIONS).fetchall():
        state, hint = outcome(standby, name, types)
        is_read = not is_volatile or name in READS | ANSWERED
        is_right = (
            state not in ("25006", "0A000", "XX000") if is_read else (state, hint) == ("25006", PRIMARY)
        )
        if not is_right:
            wrong[signature] = (state, hint)
        written += not is_read
    assert wrong == {}
    assert written > 50


PRIMARY = "This server is a standby: connect to the primary."


def outcome(connection: psycopg.Connection, name: str, types: list[str]) -> tuple[str | None, str | None]:
    arguments = ", ".join(f"null::{one}" for one in types)
    try:
        connection.execute(f"select mindful.{name}({arguments})".encode())
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_hint
    return None, None


def test_calls_that_clients_send_to_standbys_are_those_that_read(standby: psycopg.Connection) -> None:
    volatile = {name: is_volatile for _, name, is_volatile, _ in standby.execute(FUNCTIONS).fetchall()}
    methods = {name for name in vars(Client) if name in volatile}
    assert methods >= READS
    left = {name for name in methods - READS if not volatile[name]}
    assert left == {"mindful_status"}


def test_every_view_can_be_read(standby: psycopg.Connection) -> None:
    views = standby.execute(
        """select c.oid::regclass::text from pg_class c
           where c.relnamespace = 'mindful'::regnamespace and c.relkind = 'v'"""
    ).fetchall()
    assert len(views) > 12
    for (view,) in views:
        standby.execute(f"select * from {view} limit 1".encode())


def test_a_standby_recalls_shows_a_sessions_context_and_runs_models(replicated: Pair) -> None:
    with Client(replicated.dsn(1)) as client:
        assert client.memory_recall("What do I drink?")[0].content == "I like tea."
        (session,) = client.session_list()
        assert "Ana" in str(client.session_context(session.session_id, query="Who am I?"))
        assert client.llm_generate("Hi", max_tokens=2)
        assert list(client.llm_generate_stream("Hi", max_tokens=3))
        assert list(client.llm_complete_stream([{"role": "user", "content": "Hi"}], max_tokens=3))
        assert client.llm_classify("I love it.", ["good", "bad"]) in ("good", "bad")
        assert client.llm_extract("Tom is 5.", {"type": "object", "properties": {"age": {"type": "integer"}}})
        assert len(client.llm_embed_many(["tea", "rye"]) or []) == 2
        assert client.llm_token_count("tea")


def test_an_application_reads_its_tenants_memories_on_a_standby(replicated: Pair) -> None:
    with psycopg.connect(replicated.dsn(0), autocommit=True) as primary:
        primary.execute("create role shop login in role mindful_application")
    with Client(replicated.dsn(0, user="shop"), tenant="customer-7") as client:
        client.memory_insert("I like rye.")
    replicated.caught_up()
    with Client(replicated.dsn(1, user="shop"), tenant="customer-7") as client:
        assert [memory.content for memory in client.memory_recall("rye")] == ["I like rye."]
    with Client(replicated.dsn(1, user="shop"), tenant="customer-8") as client:
        assert client.memory_recall("rye") == []


def test_a_writer_is_refused_before_it_computes(standby: psycopg.Connection) -> None:
    for call in ("llm_chat('Tell me a long story.')", "memory_insert('x')", "key_create('phone')"):
        with fails("25006", "standby: connect to the primary"):
            standby.execute(f"select {call}".encode())


def calls(replicated: Pair, server: int, application: str) -> int:
    """Count connections of an application to a server."""
    with psycopg.connect(replicated.dsn(server)) as connection:
        query = "select count(*) from pg_stat_activity where application_name = %s"
        return int(one(connection, query, application))


def test_a_client_with_a_list_of_hosts_writes_on_the_primary_and_reads_on_the_standby(
    replicated: Pair,
) -> None:
    # The wrong one comes first: the server's role decides, not the order.
    writes = replicated.dsn(1, 0, target_session_attrs="read-write", application_name="listed")
    reads = replicated.dsn(0, 1, target_session_attrs="prefer-standby", application_name="listed")
    with Client(writes, reads=reads) as client:
        client.memory_insert("I like barley.")
        assert (calls(replicated, 0, "listed"), calls(replicated, 1, "listed")) == (1, 0)
        replicated.caught_up()
        assert client.memory_recall("barley")[0].content == "I like barley."
        assert list(client.llm_generate_stream("Hi", max_tokens=3))
        assert (calls(replicated, 0, "listed"), calls(replicated, 1, "listed")) == (1, 1)


def test_the_service_reads_on_the_standby(replicated: Pair) -> None:
    with psycopg.connect(replicated.dsn(0), autocommit=True) as primary:
        primary.execute("create role served login in role mindful_user")
    replicated.caught_up()
    settings = Settings(
        dsn=replicated.dsn(1, 0, user="served", target_session_attrs="read-write"),
        read_dsn=replicated.dsn(0, 1, user="served", target_session_attrs="prefer-standby"),
        connections=2,
    )
    with running(settings) as url, httpx2.Client(base_url=url, timeout=60) as http:
        body = {"model": "default", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}
        assert http.post("/v1/chat/completions", json=body).status_code == 200
        assert http.post("/v1/embeddings", json={"model": "default", "input": "tea"}).status_code == 200
        assert calls(replicated, 1, "mindful_serve") == 1
        remembered = http.post("/v1/chat/completions", json=body | {"model": "mindful/default"})
        assert remembered.status_code == 200, remembered.text


class Writer(threading.Thread):
    """Writes turns to whichever server is the primary, and notes those that were acknowledged."""

    def __init__(self, dsn: str, name: str) -> None:
        super().__init__(name=name)
        self.acknowledged: list[str] = []
        self.failed = 0
        self.stopping = threading.Event()
        self._dsn = dsn

    def run(self) -> None:
        number = 0
        with Client(self._dsn) as client:
            session_id = None
            while not self.stopping.is_set():
                number += 1
                text = f"{self.name} says {number}."
                try:
                    session_id = session_id or client.session_start()
                    client.message_insert(session_id, "user", text)
                except MindfulError:
                    self.failed += 1
                    time.sleep(0.05)
                else:
                    self.acknowledged.append(text)


def test_a_promotion_under_load_loses_no_acknowledged_turn_unless_commits_were_asynchronous() -> None:
    with pair() as replicated:
        dsn = replicated.dsn(0, 1, target_session_attrs="read-write", connect_timeout="5")
        writers = [Writer(dsn, f"writer-{number}") for number in range(4)]
        for writer in writers:
            writer.start()
        wait(lambda: min(len(writer.acknowledged) for writer in writers) >= 20)
        with psycopg.connect(replicated.dsn(0), autocommit=True) as primary:
            sender = one(primary, "select pid from pg_stat_replication")
        os.kill(sender, signal.SIGSTOP)  # as if packets were late
        with Client(replicated.dsn(0, options="-c synchronous_commit=local")) as asynchronous:
            asynchronous.memory_insert("Acknowledged before the standby had it.")
        replicated.kill(0)
        before = [len(writer.acknowledged) for writer in writers]
        replicated.promote()
        wait(lambda: all(len(w.acknowledged) >= count + 20 for w, count in zip(writers, before, strict=True)))
        for writer in writers:
            writer.stopping.set()
            writer.join()
        with psycopg.connect(replicated.dsn(1), autocommit=True) as primary:
            kept = [text for (text,) in primary.execute("select content from mindful.memory")]
    acknowledged = {text for writer in writers for text in writer.acknowledged}
    assert acknowledged - set(kept) == set()
    assert len(kept) == len(set(kept))
    assert all(writer.failed for writer in writers)
    assert "Acknowledged before the standby had it." not in kept


def wait(condition: Callable[[], bool]) -> None:
    end = Deadline()
    while not condition():
        assert not end.passed()
        time.sleep(0.02)
