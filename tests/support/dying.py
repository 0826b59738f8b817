"""A model's server that ends at a chosen moment of an answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_EVENT = {
    "completion_probabilities": [
        {"bytes": [72], "logprob": -0.1, "top_logprobs": [{"bytes": [72], "logprob": -0.1, "id": 1}], "id": 1}
    ]
}
_BODY = json.dumps(_EVENT).encode()
_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


MOMENTS: dict[str, bytes | None] = {
    "no socket": None,
    "a socket that no process listens on": None,
    "after the connection is made": b"",
    "within the status line": b"HTTP/1.1 2",
    "within the headers": b"HTTP/1.1 200 OK\r\nContent-Type: appl",
    "after a header": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n",
    "after the headers": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
    "within a body of known length": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + _BODY,
    "within a body that the connection's end ends": b"HTTP/1.1 200 OK\r\n\r\n" + _BODY[:20],
    "within a chunk": _STREAM + _chunk(b"data: " + _BODY)[:30],
    "within an event": _STREAM + _chunk(b"data: " + _BODY[:20]),
    "between two events": _STREAM + _chunk(b"data: " + _BODY + b"\n\n"),
    "while it loads the model": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}",
}
"""What the server sends before it ends."""
SHOWN = "between two events"
"""The moment after which a part of an answer was shown."""


@contextmanager
def dying(path: Path, moment: str) -> Iterator[None]:
    """Run a server on a Unix socket that ends at a moment of every answer."""
    answer = MOMENTS[moment]
    if moment == "no socket":
        yield
        return
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        if answer is None:
            yield
            return
        listening.listen(64)
        thread = threading.Thread(target=_serve, args=(listening, answer), daemon=True)
        thread.start()
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listening: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, suppress(OSError):
            if answer:
                _read(connection)
                connection.sendall(answer)


def _read(connection: socket.socket) -> None:
    """Read a request, so that its end is not what the client notices."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16) or b"\r\n\r\n"
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    left = int(lengths[0].split(b":")[1]) - len(body) if lengths else 0
    while left > 0:
        left -= len(connection.recv(1 << 16)) or left
