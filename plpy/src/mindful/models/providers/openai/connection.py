"""Connections to a model's server. They check for interrupts wherever they wait."""

from __future__ import annotations

import errno
import io
import select
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from mindful.core.errors import EngineAnswerError
from mindful.core.ports import Interrupts
from mindful.models.providers.openai.address import Address, Entry, targets
from mindful.models.providers.openai.message import Response, request

LOOK_S = 0.02
"""Between two checks for interrupts while nothing arrives."""
_MOST_BYTES = 64 << 20
"""Of one answer: 2,000 vectors of 2,000 numbers."""


class Limits(NamedTuple):
    """How long to wait, in seconds."""

    connect: float
    silence: float
    """For the next byte: a server evaluates a long prompt, or serves others first, in silence."""
    whole: float


class FailedError(Exception):
    """A request that failed before any of its answer was used, and may be sent again."""

    def __init__(self, why: str, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


class _Waiter:
    """Waits for a socket, and raises where a cancel is pending or the time is up."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.interrupts: Interrupts
        self.end = 0.0
        self.left = 0
        self._silence = 0.0

    def begin(self, interrupts: Interrupts, seconds: float, patient: bool) -> None:
        self.interrupts = interrupts
        self.end = time.monotonic() + seconds
        self.left = _MOST_BYTES
        self._silence = seconds if patient else self._limits.silence

    def wait(self, sock: socket.socket, event: int, longest: float | None = None) -> None:
        poll = select.poll()
        poll.register(sock, event)
        end = min(self.end, time.monotonic() + (longest or self._silence))
        while not poll.poll(LOOK_S * 1000):
            self.interrupts.check()
            if time.monotonic() > end:
                raise TimeoutError
        if time.monotonic() > self.end:
            raise TimeoutError


class _Socket:
    """A socket that sends and receives while it checks for interrupts."""

    def __init__(self, sock: socket.socket, waiter: _Waiter) -> None:
        self.sock = sock
        self._waiter = waiter

    def send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._again(partial(self.sock.send, left), select.POLLOUT) :]

    def reader(self) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._receive), 1 << 16)

    def _receive(self, buffer: memoryview) -> int:
        count = self._again(lambda: self.sock.recv_into(buffer), select.POLLIN)
        self._waiter.left -= count
        if self._waiter.left < 0:
            raise EngineAnswerError(
                f"the server's answer has more than {_MOST_BYTES} bytes", "Ask it for less, or see its log."
            )
        return count

    def _again(self, work: Callable[[], int], event: int) -> int:
        while True:
            try:
                return work()
            except BlockingIOError:
                self._waiter.wait(self.sock, event)
            except OSError as error:
                wanted = {"SSLWantReadError": select.POLLIN, "SSLWantWriteError": select.POLLOUT}
                if (name := type(error).__name__) not in wanted:
                    raise
                self._waiter.wait(self.sock, wanted[name])


class _Reader(io.RawIOBase):
    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self._receive = receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._receive(memoryview(buffer))


class Connection:
    """One connection, which serves one request after the other."""

    def __init__(self, address: Address, found: Entry, limits: Limits) -> None:
        self._address, self._found, self._limits = address, found, limits
        self._waiter = _Waiter(limits)
        self._socket: _Socket | None = None

    def open(self, interrupts: Interrupts, seconds: float | None, patient: bool) -> None:
        """Connect if needed. The next answer must be complete after `seconds`, by default as Limits.whole says.

        With `patient` the server may be silent as long.
        """
        self._waiter.begin(interrupts, seconds or self._limits.whole, patient)
        if self._socket is None:
            self._socket = self._connected(interrupts)

    def ask(self, method: str, path: str, body: bytes | None) -> Response:
        """Send a request, and return its answer as soon as its headers are there."""
        assert self._socket is not None
        host = "localhost" if self._address.scheme == "unix" else self._address.origin.partition("//")[2]
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self._found.key is not None:
            headers["Authorization"] = f"Bearer {self._found.key}"
        self._socket.send(request(method, host, path, headers, body))
        return Response(self._socket.reader())

    def close(self) -> None:
        """Close it."""
        if self._socket is not None:
            self._socket.sock.close()

    def ended(self) -> bool:
        """Return whether the server has closed the idle connection."""
        if self._socket is None:
            return True
        poll = select.poll()
        poll.register(self._socket.sock, select.POLLIN)
        return bool(poll.poll(0))

    def _connected(self, interrupts: Interrupts) -> _Socket:
        for family, where in targets(self._address, self._found, interrupts):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                self._connect(sock, where)
                if family != socket.AF_UNIX:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return _Socket(self._secured(sock), self._waiter)
            except OSError:
                sock.close()
            except BaseException:
                sock.close()
                raise
        raise FailedError("it cannot be connected to")

    def _connect(self, sock: socket.socket, where: Any) -> None:
        end = time.monotonic() + self._limits.connect
        while (error := sock.connect_ex(where)) == errno.EAGAIN:  # a Unix socket whose line is full
            pause(LOOK_S, self._waiter.interrupts)
            if time.monotonic() > end:
                raise TimeoutError
        if error == errno.EINPROGRESS:
            self._waiter.wait(sock, select.POLLOUT, self._limits.connect)
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, "refused")

    def _secured(self, sock: socket.socket) -> socket.socket:
        if self._address.scheme != "https":
            return sock
        import ssl

        secure = ssl.create_default_context().wrap_socket(
            sock, server_hostname=self._address.host, do_handshake_on_connect=False
        )
        while True:
            try:
                secure.do_handshake()
                return secure
            except ssl.SSLWantReadError:
                self._waiter.wait(secure, select.POLLIN)
            except ssl.SSLWantWriteError:
                self._waiter.wait(secure, select.POLLOUT)


def pause(seconds: float, interrupts: Interrupts) -> None:
    """Wait, and raise if an interrupt is pending."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        interrupts.check()
        time.sleep(min(left, LOOK_S))
