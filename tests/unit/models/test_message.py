"""Messages of HTTP: what a server sends, in any pieces."""

from __future__ import annotations

import io

import pytest
from mindful.models.providers.openai.message import BrokenError, Response, request

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


class Arriving(io.RawIOBase):
    """Bytes that arrive a few at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = io.BytesIO(data), size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        part = self._data.read(min(self._size, len(buffer)))
        buffer[: len(part)] = part
        return len(part)


def response(data: bytes, size: int = 7) -> Response:
    return Response(io.BufferedReader(Arriving(data, size), 1 << 16))


def body(data: bytes, size: int = 7) -> bytes:
    return b"".join(iter(response(data, size).read, b""))


def test_a_request_is_written_as_the_standard_says() -> None:
    assert request("GET", "localhost", "/v1/models", {}, None) == (
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    assert request("POST", "h:1", "/x", {"A": "b"}, b"{}") == (
        b"POST /x HTTP/1.1\r\nHost: h:1\r\nA: b\r\nContent-Length: 2\r\n\r\n{}"
    )


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("data", "found", "reusable"),
    [
        (SIZED % 5 + b"hello", b"hello", True),
        (SIZED % 5 + b"hello, and what was not asked for", b"hello", True),
        (SIZED % 0, b"", True),
        (CHUNKED + b"3\r\nhel\r\n2;a=b\r\nlo\r\n0\r\nX: y\r\n\r\n", b"hello", True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED % 1 + b"a", b"a", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 200\r\nConnection: Close\r\nContent-Length: 1\r\n\r\na", b"a", False),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", b"hello", False),
        (b"HTTP/1.0 200 OK\nContent-Length: 1\n\na", b"a", False),
    ],
)
def test_an_answer_is_read_in_any_pieces(data: bytes, size: int, found: bytes, reusable: bool) -> None:
    answer = response(data, size)
    assert b"".join(iter(answer.read, b"")) == found
    assert (answer.ended, answer.reusable) == (True, reusable)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
        SIZED % 5 + b"hell",
        CHUNKED + b"3\r\nhe",
        CHUNKED + b"3\r\nhel",
        CHUNKED + b"3\r\nhello\r\n",
        CHUNKED + b"3\r\nhel\r\n",
        CHUNKED + b"3\r\nhel\r\n0\r\n",
        *(CHUNKED + size + b"\r\nhel\r\n0\r\n\r\n" for size in (b"", b"-3", b"+3", b"0x3", b"3_", b"x")),
    ],
)
def test_what_is_cut_off_or_no_http_is_an_error(data: bytes) -> None:
    with pytest.raises(BrokenError):
        body(data)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_lines_are_read_across_chunks(size: int) -> None:
    answer = response(CHUNKED + b"3\r\none\r\n7\r\n\ntwo\nth\r\n3\r\nree\r\n0\r\n\r\n", size)
    assert list(iter(lambda: answer.readline(100), b"")) == [b"one\n", b"two\n", b"three"]
    assert answer.ended


def test_a_line_without_end_is_cut() -> None:
    assert len(response(SIZED % 5000 + b"a" * 5000, 700).readline(1000)) == 1000
