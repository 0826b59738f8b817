"""A model's server of OpenAI's form that goes wrong as its address asks: http://127.0.0.1:PORT/MODE/v1."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMS = 8
LATE_S = 1.5
WORDS = ["The", " capital", " is", " Paris", "."]
_ERRORS = {
    "500": {"message": "it says the prompt and sk-secret", "type": "server_error"},
    "401": {"message": "Incorrect API key sk-secret"},
}
MODES = ("hang", "half", "silent", "500", "json", "list", "huge", "drip", "redirect", "401", "plain", "line")


class Server(ThreadingHTTPServer):
    """Counts requests by mode, and notes connections that a client closed in the middle of an answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: Counter[str] = Counter()
        self.keys: list[str | None] = []
        self.redirected = 0
        self.closed = threading.Event()
        self.stopped = threading.Event()

    def source(self, mode: str) -> str:
        """Return a model's source."""
        return f"http://127.0.0.1:{self.server_address[1]}/{mode}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients go away."""


@contextmanager
def misbehaving() -> Iterator[Server]:
    """Run a server."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        _, path = self._mode()
        if path == "/v1/models":
            return self._json({"data": [{"id": "fake"}]})
        if path == "/elsewhere":
            self.server.redirected += 1
            return self._json({})
        return self._json({"error": {"message": "no such path"}}, 404)

    def do_POST(self) -> None:
        mode, path = self._mode()
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.keys.append(self.headers["authorization"])
        if path not in ("/v1/chat/completions", "/v1/embeddings", "/v1/rerank"):
            return self._json({"error": {"message": "no such path"}}, 404)
        self.server.requests[mode] += 1
        if self._fails(mode):
            return None
        if mode == "closes":
            self.close_connection = True
        if path == "/v1/rerank":
            rows = [
                {"index": at, "relevance_score": -float(len(text))}
                for at, text in enumerate(body["documents"])
            ]
            return self._json({"results": rows[1:] if mode == "few" else rows})
        if path == "/v1/embeddings":
            return self._json({"data": self._embeddings(mode, body["input"])})
        if body.get("stream"):
            return self._stream(mode)
        if body["max_tokens"] == 1:
            token = {"token": "Yes", "logprob": -0.5}
            top = [token, {"token": "No", "logprob": -1.5}]
            choice = {
                "message": {"content": "Yes"},
                "finish_reason": "length",
                "logprobs": {"content": [token | {"top_logprobs": top}]},
            }
            return self._json({"choices": [choice], "usage": {"prompt_tokens": 7}})
        return self._whole(mode)

    def _mode(self) -> tuple[str, str]:
        _, mode, *rest = self.path.split("/")
        return mode, "/" + "/".join(rest)

    def _fails(self, mode: str) -> bool:
        """Answer as a mode fails, and tell whether that was all."""
        if mode == "hang":
            self._wait()
        elif mode in _ERRORS or (mode.startswith("once") and self.server.requests[mode] == 1):
            status = mode if mode in _ERRORS else "500"
            self._json({"error": _ERRORS[status]}, int(status))
        elif mode == "context":
            self.send_response(400)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for part in (b'{"error": {"type": "exceed_cont', b'ext_size_error"}}', b""):
                self._chunk(part)
        elif mode == "redirect":
            self.send_response(307)
            port = self.server.server_address[1]
            self.send_header("Location", f"http://127.0.0.1:{port}/x/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif mode in ("json", "list"):
            self._bytes(b"<html>" if mode == "json" else b"[1]", "application/json")
        elif mode == "huge":
            self._begin("application/json", length=1 << 40)
            self._until_closed(b" " * (1 << 20), 0)
        elif mode == "drip":
            self._begin("application/json", length=1 << 20)
            self._until_closed(b" ", 0.05)
        elif mode == "line":
            self._begin("text/event-stream", length=1 << 40)
            self._until_closed(b"data: " + b"a" * (1 << 20), 0)
        else:
            return False
        return True

    def _whole(self, mode: str) -> None:
        rows = []
        for word in WORDS:
            top = [{"token": word, "logprob": -0.1}, {"token": "x", "logprob": -3.0}]
            rows.append({"token": word, "logprob": -0.1, "top_logprobs": top})
        choice: dict[str, Any] = {"message": {"content": "".join(WORDS)}, "finish_reason": "stop"}
        if mode != "plain":
            choice["logprobs"] = {"content": rows}
        answer = {"choices": [choice], "usage": {"prompt_tokens": 7}}
        if mode == "slow":
            return self._wait()
        if mode == "late":
            time.sleep(LATE_S)
        if mode not in ("half", "silent"):
            return self._json(answer)
        data = json.dumps(answer).encode()
        self._begin("application/json", len(data))
        self.wfile.write(data[: len(data) // 2])
        if mode == "silent":
            return self._wait()
        self.connection.shutdown(socket.SHUT_RDWR)
        return None

    def _stream(self, mode: str) -> None:
        self._begin("text/event-stream", None)
        # Words that repeat would be ended as a loop.
        for at, word in enumerate([f" w{at}" for at in range(1000)] if mode == "slow" else WORDS):
            if mode == "half" and at == 2:
                self.connection.shutdown(socket.SHUT_RDWR)
                return None
            if mode == "silent" and at == 2:
                return self._wait()
            if mode == "late" and at == 2:
                time.sleep(LATE_S)
            if mode == "slow":
                time.sleep(0.02)
            choice: dict[str, Any] = {"index": 0, "delta": {"content": word}}
            if mode != "plain":
                top = [{"token": word, "logprob": -0.1}, {"token": "x", "logprob": -3.0}]
                choice["logprobs"] = {"content": [{"token": word, "logprob": -0.1, "top_logprobs": top}]}
            if not self._event({"choices": [choice]}):
                return None
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self._event({"choices": [], "usage": {"prompt_tokens": 7}})
        self._write(b"data: [DONE]\n\n")
        self._chunk(b"")
        return None

    def _embeddings(self, mode: str, texts: list[str]) -> list[dict[str, Any]]:
        rows = []
        for at, text in enumerate(texts):
            vector = [
                1.0 + (sum(text.encode()) >> bit & 1) for bit in range(DIMS + (mode == "dims" and at > 0))
            ]
            if mode == "grows" and self.server.requests[mode] > 1:
                vector.append(1.0)
            if mode == "nan":
                vector[0] = float("nan")
            rows.append({"index": at, "embedding": vector})
        return rows[1:] if mode == "few" else rows

    def _begin(self, kind: str, length: int | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if self.close_connection:
            self.send_header("Connection", "close")
        elif length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _json(self, value: object, status: int = 200) -> None:
        self._bytes(json.dumps(value).encode(), "application/json", status)

    def _bytes(self, data: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if self.close_connection:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _event(self, event: dict[str, Any]) -> bool:
        return self._write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _write(self, data: bytes) -> bool:
        return self._chunk(data)

    def _chunk(self, data: bytes) -> bool:
        try:
            self.wfile.write(data if self.close_connection else b"%x\r\n%s\r\n" % (len(data), data))
        except OSError:
            self.server.closed.set()
            return False
        return True

    def _until_closed(self, data: bytes, pause_s: float) -> None:
        try:
            while not self.server.stopped.is_set():
                self.wfile.write(data)
                time.sleep(pause_s)
        except OSError:
            self.server.closed.set()

    def _wait(self) -> None:
        """Send nothing until the client closes the connection."""
        self.connection.settimeout(0.02)
        while not self.server.stopped.is_set():
            try:
                if self.connection.recv(1) == b"":
                    self.server.closed.set()
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.close_connection = True
