"""A service in a process of its own, over this test's database."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx2
import openai
import psycopg
import pytest
from support import SCRIPTED_GENERATOR, forked
from support.clock import Deadline
from support.models import register_once
from support.query import one

ASK = [{"role": "user", "content": "What is the capital of France?"}]
BODY = {"model": SCRIPTED_GENERATOR, "messages": ASK}
CHAT = "/v1/chat/completions"
BUSY = "select count(*) from pg_stat_activity where application_name = 'mindful_serve' and state <> 'idle'"


@dataclass(frozen=True)
class Service:
    """A running service, its process, and the key of customer-7."""

    url: str
    process: forked.Process
    key: str
    http: httpx2.Client
    clients: list[openai.OpenAI] = field(default_factory=list)

    def client(self, key: str | None = None, **given: Any) -> openai.OpenAI:
        """Return OpenAI's own client of it, which believes no response that is not as its types say."""
        options = {"max_retries": 0, "_strict_response_validation": True} | given
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=key or self.key, **options)
        self.clients.append(client)
        return client

    def post(self, path: str, body: object = None, **given: Any) -> httpx2.Response:
        """Post JSON with the key."""
        headers = {"authorization": f"Bearer {self.key}"} | given.pop("headers", {})
        if body is not None:
            given["json"] = body
        return self.http.post(path, headers=headers, **given)

    def get(self, path: str) -> httpx2.Response:
        """Get with the key."""
        return self.http.get(path, headers={"authorization": f"Bearer {self.key}"})


Start = Callable[..., Service]


class Sharing(Protocol):
    """A database that tests share."""

    name: str


@contextmanager
def served(
    dsn: str,
    key: str,
    *options: str,
    tenant: str = "",
    stderr: Path | None = None,
    patience_s: int | None = None,
) -> Iterator[Service]:
    """Run `mindful serve` until it is not needed any more; it waits for a client that long, or 15 seconds."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "MINDFUL_DSN": dsn} | ({"MINDFUL_TENANT": tenant} if tenant else {})
    process = forked.start(["--port", str(port), *options], environment, stderr, patience_s)
    try:
        with _http(f"http://127.0.0.1:{port}") as http:
            _wait_for(process, http)
            service = Service(f"http://127.0.0.1:{port}", process, key, http)
            yield service
            for client in service.clients:
                client.close()
    finally:
        process.terminate()
        process.join(60)


def _http(url: str) -> httpx2.Client:
    """A client of one request a connection, that does not read the certificates of this machine."""
    return httpx2.Client(
        base_url=url, timeout=60, verify=False, limits=httpx2.Limits(max_keepalive_connections=0)
    )


def _wait_for(process: forked.Process, http: httpx2.Client) -> None:
    end = Deadline()
    while True:
        try:
            http.get("/health", timeout=5)
            return
        except httpx2.TransportError:
            assert process.is_alive(), "the service ended"
            assert not end.passed(), "the service does not start"
            time.sleep(0.02)


def wait_until(true: Any) -> None:
    end = Deadline()
    while not true():
        assert not end.passed()
        time.sleep(0.02)


@pytest.fixture
def key(admin: psycopg.Connection) -> str:
    """A key of customer-7."""
    return str(one(admin, "select key_create('notebook', 'customer-7')"))


@pytest.fixture
def other_key(admin: psycopg.Connection) -> str:
    """A key of customer-8."""
    return str(one(admin, "select key_create('phone', 'customer-8')"))


@pytest.fixture(scope="module")
def shared_services(shared: object) -> Iterator[tuple[dict[object, Service], ExitStack]]:
    """The services that run until the end of a module, before that of the databases that its tests share."""
    with ExitStack() as opened:
        yield {}, opened


@pytest.fixture
def start(
    dsn_of: Mapping[str, str], key: str, sharing: Sharing | None, request: pytest.FixtureRequest
) -> Iterator[Start]:
    """Starts a service with options; --keys and the application's role where nothing else is said.

    Tests that share a database share its services: each of them begins once.
    """
    with ExitStack() as opened:
        made: dict[object, Service] = {}
        if sharing is not None:
            made, opened_for_all = request.getfixturevalue("shared_services")

        def begin(*options: str, tenant: str = "", patience_s: int | None = None) -> Service:
            given = options or ("--keys",)
            which = (sharing.name, given, tenant, patience_s) if sharing is not None else object()
            if which not in made:
                service = served(dsn_of["application"], key, *given, tenant=tenant, patience_s=patience_s)
                made[which] = (opened if sharing is None else opened_for_all).enter_context(service)
            return made[which]

        yield begin


@pytest.fixture
def service(start: Start) -> Service:
    """A service that needs keys."""
    return start()


@pytest.fixture(params=["legacy", "auto"])
def mode(request: pytest.FixtureRequest) -> str:
    """An era of the Model Context Protocol, as its client names it."""
    return str(request.param)


@pytest.fixture
def talker(admin: psycopg.Connection) -> str:
    """A model whose reply has 600 words."""
    return registered(admin, "talker", " ".join(f"word{n}" for n in range(600)))


def registered(admin: psycopg.Connection, name: str, reply: str) -> str:
    """Register a model that always gives a reply, and return its name."""
    return register_once(admin, name, "generator", "scripted", default=reply, context_length=10_000)


@pytest.fixture
def judge(admin: psycopg.Connection) -> str:
    """A reranker."""
    return register_once(admin, "judge", "reranker", "scripted")
