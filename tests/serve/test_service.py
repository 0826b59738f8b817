"""What holds the service together: tenants, cancels, limits, poolers, and a database that goes away."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import openai
import psycopg
import pytest
from mindful_serve.audit import Contents
from serve.conftest import ASK, BODY, BUSY, CHAT, Service, Start, served, wait_until
from support import GENERATOR, SCRIPTED_GENERATOR
from support.clock import Deadline, within
from support.command import Command
from support.models import register_once
from support.pooler import pgbouncer
from support.query import one


def test_two_keys_never_see_each_others_rows(
    service: Service, other_key: str, db: psycopg.Connection
) -> None:
    mine, other = service.client(), service.client(other_key)
    model = f"mindful/{SCRIPTED_GENERATOR}"
    kept = mine.responses.create(model=model, input="My locker has the number 4711.")
    conversation = mine.conversations.create()
    mine.responses.create(model=model, input="The number is 4711.", conversation=conversation.id)
    with pytest.raises(openai.NotFoundError):
        other.responses.create(model=model, input="Go on.", previous_response_id=kept.id)
    with pytest.raises(openai.NotFoundError):
        other.responses.create(model=model, input="Go on.", conversation=conversation.id)
    talk: list[Any] = [
        {"role": "user", "content": "My locker has the number 4711."},
        {"role": "assistant", "content": kept.output_text},
        {"role": "user", "content": "What is the number of my locker?"},
    ]
    answer = other.chat.completions.create(model=model, messages=talk)
    assert answer.model_extra is not None
    session_id = answer.model_extra["x_mindful"]["session_id"]
    assert one(db, "select tenant from session where session_id = %s", session_id) == "customer-8"
    streamed = other.chat.completions.create(model=model, messages=talk[-1:], stream=True)
    *_, last = streamed
    for reply in (answer, last):
        assert reply.model_extra is not None
        shown = reply.model_extra["x_mindful"]["memory_ids"]
        tenants = db.execute("select distinct tenant from memory where id = any(%s)", (shown,)).fetchall()
        assert tenants in ([], [("customer-8",)])
    owners = db.execute("select distinct tenant from memory where content like '%4711%'").fetchall()
    assert {tenant for (tenant,) in owners} == {"customer-7", "customer-8"}


@pytest.mark.shares
def test_a_resent_history_is_not_found_by_another_tenant(
    service: Service, other_key: str, brief: str
) -> None:
    talk: list[Any] = [{"role": "user", "content": "Tell me about the keeper of the lighthouse. " * 12}]
    given: dict[str, Any] = {"model": brief, "messages": talk, "max_tokens": 2}
    service.client().chat.completions.create(**given)
    again = service.client().chat.completions.create(**given)
    other = service.client(other_key).chat.completions.create(**given)
    assert again.usage is not None
    assert other.usage is not None
    details = again.usage.prompt_tokens_details, other.usage.prompt_tokens_details
    assert [one.cached_tokens if one else None for one in details][1] == 0
    assert details[0] is not None
    assert (details[0].cached_tokens or 0) > 64


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.shares
def test_a_client_that_goes_away_cancels_its_statement(
    service: Service, db: psycopg.Connection, streams: bool
) -> None:
    body = {"model": GENERATOR, "messages": ASK, "max_tokens": -1, "stream": streams}
    body["logit_bias"] = {"2": -100}  # it never ends of itself
    content = json.dumps(body).encode()
    host, port = service.url.removeprefix("http://").split(":")
    head = f"POST {CHAT} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    head += f"authorization: Bearer {service.key}\r\ncontent-length: {len(content)}\r\n\r\n"
    for clock in within(0.5):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + content)
            if streams:
                connection.recv(4096)
            wait_until(lambda: one(db, BUSY) > 0)
            time.sleep(0.5)
            assert one(db, BUSY) == 1
        clock.start()
        wait_until(lambda: one(db, BUSY) == 0)


@pytest.mark.shares
def test_unknown_paths_and_methods_have_errors_of_the_same_form(service: Service) -> None:
    assert service.get("/v1/audio").status_code == 404
    assert service.get("/v1/audio").json()["error"]["code"] == "unknown_url"
    assert service.get(CHAT).json()["error"]["type"] == "invalid_request_error"
    assert service.get(CHAT).status_code == 405


def test_health_and_figures_need_no_key_and_name_no_tenant(service: Service) -> None:
    service.client().chat.completions.create(**BODY)  # type: ignore[call-overload]
    assert service.http.get("/health").json() == {"status": "ok"}
    assert service.http.get("/ready").json()["version"]
    figures = service.http.get("/metrics").text
    assert 'mindful_serve_requests_total{path="/v1/chat/completions",status="200"} 1' in figures
    assert 'mindful_serve_tokens_total{kind="completion"} 6' in figures
    assert "customer-7" not in figures


def test_a_stream_that_fails_counts_as_failed(service: Service, admin: psycopg.Connection) -> None:
    model = register_once(admin, "fails-1", "generator", "scripted", fails_after=1)
    with pytest.raises(openai.APIError):
        list(service.client().chat.completions.create(model=model, messages=ASK, stream=True))  # type: ignore[arg-type]
    figures = service.http.get("/metrics").text
    assert 'mindful_serve_requests_total{path="/v1/chat/completions",status="500"} 1' in figures


@pytest.mark.shares
def test_pages_of_the_web_may_not_call_it(service: Service) -> None:
    preflight = httpx2.options(
        service.url + CHAT, headers={"origin": "https://example.org", "access-control-request-method": "POST"}
    )
    assert preflight.status_code == 405
    answer = service.post(CHAT, BODY, headers={"origin": "https://example.org"})
    assert "access-control-allow-origin" not in answer.headers


def test_without_keys_only_programs_of_this_machine_are_answered() -> None:
    refused = Command("")("serve", "--no-keys", "--host", "0.0.0.0", "--port", "0")
    assert refused.exit_code == 1
    assert "--host is 0.0.0.0" in refused.stderr
    assert "--keys" in refused.stderr


def test_without_keys_the_connections_role_is_the_tenant(
    dsn_of: Mapping[str, str], ana: psycopg.Connection
) -> None:
    with served(dsn_of["ana"], "none", "--no-done") as service:
        model = f"mindful/{SCRIPTED_GENERATOR}"
        answer = service.post(CHAT, BODY | {"model": model, "stream": True})
        assert "[DONE]" not in answer.text
        assert one(ana, "select count(*) from memory") == 2
        for headers in ({"host": "example.org"}, {"x-forwarded-for": "10.0.0.1"}):
            assert service.post(CHAT, BODY, headers=headers).status_code == 403


def test_it_works_over_a_pooler_in_transaction_mode(
    dsn_of: Mapping[str, str], key: str, other_key: str, db: psycopg.Connection
) -> None:
    with pgbouncer([dsn_of["application"]]) as (over,), served(over, key, "--keys") as service:
        for used, tenant in ((key, "customer-7"), (other_key, "customer-8")):
            client = service.client(used)
            client.chat.completions.create(model=f"mindful/{SCRIPTED_GENERATOR}", messages=ASK)  # type: ignore[arg-type]
            stream = client.chat.completions.create(**BODY, stream=True)  # type: ignore[call-overload]
            assert sum(1 for _ in stream) > 2
            assert one(db, "select count(*) from memory where tenant = %s", tenant) == 2


def test_a_database_that_goes_away_is_waited_for(
    service: Service, db: psycopg.Connection, database: str, cluster: Any
) -> None:
    assert service.post(CHAT, BODY).status_code == 200
    with cluster.connect() as root:
        root.execute(f'alter database "{database}" allow_connections false'.encode())
        root.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'mindful_serve'"
        )
        # Each of them waits for three seconds.
        with ThreadPoolExecutor() as pool:
            answers = [pool.submit(service.post, CHAT, BODY) for _ in range(2)]
            answers.append(pool.submit(service.get, "/ready"))
            assert service.get("/health").status_code == 200
            assert [answer.result().status_code for answer in answers] == [503] * 3
        root.execute(f'alter database "{database}" allow_connections true'.encode())
    wait_until(lambda: service.post(CHAT, BODY).status_code == 200)


def test_a_database_without_the_extension_is_told_what_to_do(
    service: Service, db: psycopg.Connection
) -> None:
    for statement, hint in (
        ("drop extension mindful cascade", "differ in version"),
        ("drop schema mindful cascade", "CREATE EXTENSION mindful"),
    ):
        db.execute(statement.encode())
        for answer in (service.get("/v1/models"), service.post("/mcp", {})):
            assert answer.status_code == 503
            assert hint in answer.json()["error"]["message"]


def test_a_restart_of_the_database_costs_no_request(start: Start, db: psycopg.Connection) -> None:
    service = start(
        "--keys", "--queue-seconds", "3"
    )  # by waiting, the pool would try five connections of eight
    opened = "from pg_stat_activity where application_name = 'mindful_serve' and datname = current_database()"
    with ThreadPoolExecutor(8) as pool:
        wait_until(
            lambda: (
                list(pool.map(lambda _: service.post(CHAT, BODY), range(8)))
                and one(db, f"select count(*) {opened}") == 10
            )
        )
    db.execute(f"select pg_terminate_backend(pid) {opened}".encode())
    assert service.post(CHAT, BODY).status_code == 200


@pytest.mark.shares
async def test_many_streams_at_once_end_or_are_sent_away(start: Start) -> None:
    service = start("--keys", "--connections", "2", "--queue-seconds", "60")
    async with openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=service.key, max_retries=0, timeout=120
    ) as client:

        async def use() -> str:
            try:
                stream = await client.chat.completions.create(**BODY, stream=True)  # type: ignore[call-overload]
                return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            except openai.RateLimitError as error:
                return f"again in {error.response.headers['retry-after']}"

        answers = await asyncio.gather(*(use() for _ in range(50)))
    assert set(answers) <= {"The capital of France is Paris.", "again in 1"}
    assert answers.count("again in 1") < 25
    assert memory_of(service) < 150e6


def memory_of(service: Service) -> int:
    pages = int(Path(f"/proc/{service.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_no_connection_is_waited_for_longer_than_is_said(start: Start) -> None:
    service = start("--keys", "--connections", "1", "--queue-seconds", "0.3")
    long = {"model": GENERATOR, "messages": ASK, "logit_bias": {"2": -100}, "max_tokens": 1500}

    def hold() -> None:
        refused = (429, 503)  # the connection is in use, or not open yet
        with suppress(httpx2.TransportError):  # the service ends before its answer
            while service.post(CHAT, long).status_code in refused:
                time.sleep(0.01)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        end = Deadline()
        while (answer := service.post(CHAT, BODY)).status_code != 429:
            assert not end.passed()
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["type"] == "rate_limit_error"
    finally:
        service.process.kill()  # it would wait for the answer that it holds
        holder.join()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("limit", "words"), [(None, 256), (9, 9), (-1, 600)])
@pytest.mark.shares
def test_minus_one_is_what_fits_with_memories_too(
    service: Service, talker: str, scripted: None, stream: bool, limit: int | None, words: int
) -> None:
    talk: list[Any] = ASK
    answer = service.client().chat.completions.create(
        model=f"mindful/{talker}", messages=talk, max_tokens=limit, stream=stream
    )
    if isinstance(answer, openai.Stream):
        text = "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)
    else:
        text = answer.choices[0].message.content or ""
    assert len(text.split()) == words


@pytest.mark.shares
def test_the_audit_names_who_and_what_but_not_what_was_said(
    dsn_of: Mapping[str, str], key: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with served(dsn_of["application"], key, "--keys", stderr=log) as service:
        said = [{"role": "user", "content": "My secret is 4711."}]
        service.post(CHAT, BODY | {"messages": said})
        service.post(CHAT, BODY | {"messages": said, "temperature": "4711"})
    text = log.read_text()
    assert '"tenant": "customer-7"' in text
    assert '"status": 400' in text
    assert "4711" not in text
    assert key not in text


PERSONAL = ("ana@example.org", "415-555-2671", "4111 1111 1111 1111", "AKIAIOSFODNN7EXAMPLE", "hunter2")


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.shares
def test_the_audit_shows_contents_on_request_without_personal_data(
    dsn_of: Mapping[str, str], key: str, tmp_path: Path, streams: bool
) -> None:
    log, text = tmp_path / "log", f"A violin. Mail {', '.join(PERSONAL[:4])}\nMy password is {PERSONAL[4]}."
    options = ("--keys", "--audit-contents")
    with served(dsn_of["application"], key, *options, stderr=log) as service:
        said = [{"role": "user", "content": "Hello"}, {"role": "user", "content": text}]
        assert service.post(CHAT, BODY | {"messages": said, "stream": streams}).status_code == 200
        assert service.post("/v1/embeddings", {"model": "absent", "input": text}).status_code == 404
        service.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"content": text}})
    written = log.read_text()
    assert not [one for one in PERSONAL if one in written]
    lines = [json.loads(line.partition(": ")[2]) for line in written.splitlines() if '"contents"' in line]
    hidden = "A violin. Mail [email], [phone], [card], [secret]\nMy password is [secret]"
    assert [line["contents"]["request"] for line in lines] == [f"Hello\n{hidden}", hidden, hidden]
    assert lines[0]["contents"]["answer"] == "I do not know."


def test_a_number_that_a_stream_cuts_in_two_is_redacted() -> None:
    contents = Contents()
    for piece in ("Call 415-", "555-2671", " or ask."):
        event = {"choices": [{"delta": {"content": piece}}]}
        contents.take({"type": "http.response.body", "body": f"data: {json.dumps(event)}\n\n".encode()})
    contents.take({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
    assert contents.redacted()["answer"] == "Call [phone] or ask."


@pytest.mark.shares
def test_the_guides_own_client_is_served(dsn_of: Mapping[str, str]) -> None:
    """A client that parses each line of data as JSON, sends max_tokens -1 and a name with a slash."""
    alias = f"Owner/Name-GGUF={SCRIPTED_GENERATOR}"
    with served(dsn_of["ana"], "none", "--no-done", "--alias", alias) as service:
        history = [{"role": "system", "content": "You are kind."}, {"role": "assistant", "content": "Hello!"}]
        for _ in range(3):
            history.append({"role": "user", "content": "What is the capital of France?"})
            words = ""
            body = {
                "model": "Owner/Name-GGUF",
                "messages": history,
                "temperature": 0.7,
                "max_tokens": -1,
                "stream": True,
            }
            with httpx2.stream("POST", service.url + CHAT, json=body, timeout=60) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data:"):
                        words += json.loads(line[5:])["choices"][0]["delta"].get("content", "")
            assert words == "The capital of France is Paris."
            history.append({"role": "assistant", "content": words})
        summary = [{"role": "system", "content": "Summarize."}, *history[1:]]
        body = {"model": "Owner/Name-GGUF", "messages": summary, "temperature": 0.7, "max_tokens": -1}
        assert service.post(CHAT, body).json()["choices"][0]["message"]["content"] is not None
