"""A client that sends slowly, or does not read, is cut off."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from serve.conftest import BODY, BUSY, CHAT, Service, Start, registered, wait_until
from support.clock import Deadline
from support.query import one

PATIENCE_S = 2
"""For how long these services wait for a client, in the place of 15 seconds."""


@pytest.mark.shares
def test_a_slow_sender_is_sent_away(start: Start) -> None:
    service = start(patience_s=PATIENCE_S)
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {service.key}\r\n"
        connection.sendall(f"{head}content-type: application/json\r\ncontent-length: 100\r\n\r\n{{".encode())
        assert b"408" in connection.recv(4096).splitlines()[0]


def raw(service: Service) -> socket.socket:
    host, port = service.url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Tell whether the service ended a connection, without reading what it sent."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


def is_kept(connection: socket.socket) -> bool:
    """Tell whether the service has a connection still; its end reaches a client only after what was sent before."""
    port = f":{connection.getsockname()[1]:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(row[2].endswith(port) and row[3] == "01" for row in rows)


@pytest.mark.shares
def test_a_head_or_a_body_that_never_ends_is_cut_off(start: Start) -> None:
    """Before the first request, after an answer, and after an answer that did not read its request."""
    service = start(patience_s=PATIENCE_S)
    head = "host: localhost\r\ncontent-type: application/json\r\n"
    begun = (
        "GET /health HTTP/1.1\r\nx-slow: ",
        f"GET /health HTTP/1.1\r\n{head}\r\nGET /health HTTP/1.1\r\nx-slow: ",
        f"POST {CHAT} HTTP/1.1\r\n{head}authorization: Bearer none\r\ncontent-length: 100000\r\n\r\n",
    )
    connections = [raw(service) for _ in begun]
    try:
        for connection, words in zip(connections, begun, strict=True):
            connection.sendall(words.encode())
        end = Deadline()
        while dripping := [one for one in connections if not is_closed(one)]:
            assert not end.passed()
            for connection in dripping:
                with suppress(OSError):  # it was closed meanwhile
                    connection.sendall(b"x")
            time.sleep(0.2)
    finally:
        for connection in connections:
            connection.close()


def test_a_client_that_reads_nothing_is_cut_off(start: Start, judge: str) -> None:
    service = start("--keys", "--body-megabytes", "32", patience_s=PATIENCE_S)
    # Long words: the model takes its time for the number of them.
    documents = ["tea " + "x" * 8000] * 2000
    body = {"model": judge, "query": "tea", "documents": documents, "return_documents": True}
    content = json.dumps(body).encode()
    head = f"POST /v1/rerank HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {service.key}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    with raw(service) as connection:
        connection.sendall(head.encode() + content)
        assert b" 200 " in connection.recv(16)
        wait_until(lambda: not is_kept(connection))
    assert service.get("/health").status_code == 200


@pytest.mark.parametrize(("path", "reads"), [(CHAT, 1), ("/v1/responses", 0)])
def test_a_stream_whose_reader_is_slow_ends_and_frees_its_connection(
    start: Start, admin: psycopg.Connection, db: psycopg.Connection, path: str, reads: int
) -> None:
    talker = registered(admin, "talker", ("so" * 1000 + " ") * 5000)  # 10 MB
    service = start("--keys", "--connections", "1", patience_s=PATIENCE_S)
    talk = {"messages": [{"role": "user", "content": "Talk"}]}
    asked = talk if path == CHAT else {"input": "Talk", "store": False}
    content = json.dumps(asked | {"model": talker, "stream": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {service.key}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    before = resident(service)
    with raw(service) as connection:
        connection.sendall(head.encode() + content)
        assert b" 200 " in connection.recv(16)
        end = Deadline(180)
        while is_kept(connection):
            assert not end.passed()
            if reads:
                connection.recv(reads)
            time.sleep(1)
        wait_until(lambda: one(db, BUSY) == 0)
    assert resident(service) < before + (32 << 20)
    assert service.post(CHAT, BODY | {"model": talker, "max_tokens": 2}).status_code == 200


def resident(service: Service) -> int:
    """Return the bytes of memory that the service's process has."""
    pages = Path(f"/proc/{service.process.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
