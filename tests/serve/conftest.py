"""A service in a process of its own, over this test's database."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

import httpx2
import openai
import psycopg
import pytest
from support.clock import Deadline
from support.query import one


@dataclass(frozen=True)
class Service:
    """A running service, its process, and the key of customer-7."""

    url: str
    process: subprocess.Popen[bytes]
    key: str
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
        return httpx2.post(self.url + path, headers=headers, timeout=60, **given)

    def get(self, path: str) -> httpx2.Response:
        """Get with the key."""
        return httpx2.get(self.url + path, headers={"authorization": f"Bearer {self.key}"}, timeout=60)


Start = Callable[..., Service]


@contextmanager
def served(
    dsn: str, key: str, *options: str, tenant: str = "", stderr: IO[bytes] | None = None
) -> Iterator[Service]:
    """Run `mindful serve` until it is not needed any more."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "MINDFUL_DSN": dsn} | ({"MINDFUL_TENANT": tenant} if tenant else {})
    command = [sys.executable, "-m", "mindful_client", "serve", "--port", str(port), *options]
    with subprocess.Popen(command, env=environment, stderr=stderr) as process:
        try:
            service = Service(f"http://127.0.0.1:{port}", process, key)
            end = Deadline()
            while True:
                try:
                    httpx2.get(f"{service.url}/health", timeout=5)
                    break
                except httpx2.TransportError:
                    assert process.poll() is None, "the service ended"
                    assert not end.passed(), "the service does not start"
                    time.sleep(0.05)
            yield service
            for client in service.clients:
                client.close()
        finally:
            process.terminate()
            process.wait(60)


@pytest.fixture
def key(admin: psycopg.Connection) -> str:
    """A key of customer-7."""
    return str(one(admin, "select key_create('notebook', 'customer-7')"))


@pytest.fixture
def other_key(admin: psycopg.Connection) -> str:
    """A key of customer-8."""
    return str(one(admin, "select key_create('phone', 'customer-8')"))


@pytest.fixture
def start(dsn_of: Mapping[str, str], key: str) -> Iterator[Start]:
    """Starts a service with options; --keys and the application's role where nothing else is said."""
    with ExitStack() as opened:

        def begin(*options: str, tenant: str = "") -> Service:
            given = options or ("--keys",)
            return opened.enter_context(served(dsn_of["application"], key, *given, tenant=tenant))

        yield begin


@pytest.fixture
def service(start: Start) -> Service:
    """A service that needs keys."""
    return start()
