"""Requests to a model's server."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from mindful.core.errors import (
    AddressError,
    ContextLengthError,
    EngineAnswerError,
    EngineError,
    MindfulError,
)
from mindful.core.ports import Interrupts
from mindful.models.providers.openai.address import Address, entry
from mindful.models.providers.openai.connection import Connection, FailedError, Limits, pause
from mindful.models.providers.openai.health import Health
from mindful.models.providers.openai.message import BrokenError, Response

_LONGEST_LINE = 4 << 20
_LONGEST_ERROR = 1 << 16
_BACK_OFF_S = (0.1, 0.4)
"""Before the second and the third try."""
_LONGEST_BACK_OFF_S = 5.0
_MISSING = (404, 405, 501)
_RETRIED = (408, 429, 500, 502, 503, 504)


class EndedError(EngineError):
    """The server ended its answer in the middle."""

    def __init__(self, address: Address) -> None:
        super().__init__(
            f"the server {address.origin} ended its answer in the middle", "Ask again; see the server's log."
        )


class _Request(NamedTuple):
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    none_at: Sequence[int] = ()
    seconds: float | None = None
    """Of the whole answer, by default as Limits.whole says."""
    patient: bool = False
    """Whether the server may be silent for as long, because it sends nothing before it has all."""


_health: dict[str, Health] = {}


class Server:
    """A model's server, with the connections to it that are kept open."""

    def __init__(self, address: Address, directory: str, limits: Limits) -> None:
        self.address = address
        self._directory = directory
        self._limits = limits
        self._idle: list[Connection] = []
        self.health = _health.setdefault(address.origin, Health())

    def get(self, path: str, interrupts: Interrupts) -> Any | None:
        """Return what a path holds, or None where the server has no such path."""
        return self._whole(_Request("GET", path, none_at=_MISSING), interrupts)

    def post(
        self, path: str, body: Mapping[str, Any], interrupts: Interrupts, *, patient: bool = False
    ) -> Any:
        """Return the answer to a request. With patient the limit of silence is that of the whole answer."""
        return self._whole(_Request("POST", path, body, patient=patient), interrupts)

    def ask(
        self, path: str, body: Mapping[str, Any], interrupts: Interrupts, none_at: Sequence[int] = ()
    ) -> Any | None:
        """Return the answer to a request, or None where the server has no such path or answers with a status."""
        return self._whole(_Request("POST", path, body, (*_MISSING, *none_at)), interrupts)

    def events(
        self, path: str, body: Mapping[str, Any], interrupts: Interrupts
    ) -> Generator[dict[str, Any], None, None]:
        """Yield the events of an answer as they arrive; it must be closed, which closes the connection too."""
        with self._answered(_Request("POST", path, body), interrupts) as response:
            while line := response.readline(_LONGEST_LINE):
                if len(line) == _LONGEST_LINE:
                    raise EngineAnswerError("the server sends a line without end", "See its log.")
                if not line.endswith(b"\n"):  # the server ended within the line
                    break
                name, _, data = line.strip().partition(b":")
                if name not in (b"data", b"error") or not data:
                    continue
                if data.strip() == b"[DONE]":
                    _body(response)
                    return
                event = _parsed(data)
                if "error" in event:
                    raise _refused(self.address, 500, event)
                yield event
                if event.get("stop") is True:  # the last one of llama.cpp's own form
                    _body(response)
                    return
            raise BrokenError

    def reachable(self, interrupts: Interrupts, path: str) -> bool:
        """Return whether the server answers a path within `Limits.connect`. An open connection counts as an answer.

        The next request uses the connection. It can fail all the same: a server can end at any moment.
        """
        while self._idle and self._idle[-1].ended():
            self._idle.pop().close()
        if self._idle:
            return True
        try:
            self.health.check(self.address)
            asked = _Request("GET", path, none_at=_MISSING, seconds=self._limits.connect)
            connection, response = self._try(asked, None, interrupts)
            _body(response)
            self._idle.append(connection)
        except (EngineError, FailedError, OSError, BrokenError) as error:
            if isinstance(error, FailedError):
                self.health.bad(str(error))
            return False
        return True

    def close(self) -> None:
        """Close all connections."""
        while self._idle:
            self._idle.pop().close()

    def _connection(self, asked: _Request, interrupts: Interrupts) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.ended():
                connection.open(interrupts, asked.seconds, asked.patient)
                return connection
            connection.close()
        connection = Connection(self.address, entry(self.address, self._directory), self._limits)
        connection.open(interrupts, asked.seconds, asked.patient)
        return connection

    def _whole(self, asked: _Request, interrupts: Interrupts) -> Any | None:
        with self._answered(asked, interrupts) as response:
            data = _body(response)
            if response.status in asked.none_at:
                return None
            try:
                return _parsed(data)
            except EngineAnswerError:
                if not response.bounded:  # a server that ended looks like this
                    raise BrokenError from None
                raise

    @contextmanager
    def _answered(self, asked: _Request, interrupts: Interrupts) -> Iterator[Response]:
        """Send a request, again where that is of use, and keep the connection if all of the answer was read."""
        connection, response = self._sent(asked, interrupts)
        kept = False
        try:
            yield response
            kept = response.ended and response.reusable
        except TimeoutError:
            raise self._late() from None
        except (OSError, BrokenError):
            self.health.bad("it ended its answer in the middle")
            raise EndedError(self.address) from None
        finally:
            if kept:
                self._idle.append(connection)
            else:
                connection.close()

    def _sent(self, asked: _Request, interrupts: Interrupts) -> tuple[Connection, Response]:
        data = None if asked.body is None else json.dumps(asked.body).encode()
        interrupts.check()  # many quick requests in a row never wait, where interrupts are checked otherwise
        self.health.check(self.address)
        for wait_s in (*_BACK_OFF_S, None):
            try:
                return self._try(asked, data, interrupts)
            except FailedError as failed:
                if wait_s is None:
                    self.health.bad(str(failed))
                    raise EngineError(
                        f"the server {self.address.origin} does not serve: {failed}",
                        "Start it, or see its log; SELECT mindful_status() shows what is known of it.",
                    ) from None
                pause(min(max(wait_s, failed.wait_s), _LONGEST_BACK_OFF_S), interrupts)
        raise AssertionError

    def _try(
        self, asked: _Request, data: bytes | None, interrupts: Interrupts
    ) -> tuple[Connection, Response]:
        started = time.monotonic()
        connection = self._connection(asked, interrupts)
        try:
            response = connection.ask(asked.method, asked.path, data)
            if response.status != 200 and response.status not in asked.none_at:
                self._raise(response)
            self.health.good((time.monotonic() - started) * 1000)
            return connection, response
        except TimeoutError:
            connection.close()
            raise self._late() from None
        except (OSError, BrokenError) as error:
            connection.close()
            raise FailedError(f"the connection broke ({type(error).__name__})") from None
        except BaseException:
            connection.close()
            raise

    def _raise(self, response: Response) -> None:
        status = response.status
        if 300 <= status < 400:
            raise EngineAnswerError(
                f"the server {self.address.origin} redirects to another address, which is not followed",
                "Register the model with the address that it redirects to, if you trust it.",
            )
        if status in _RETRIED:
            after = response.headers.get("retry-after", "")
            raise FailedError(
                f"it answered with status {status}", wait_s=float(after) if after.isdigit() else 0
            )
        body: Any = None
        with suppress(ValueError, RecursionError):
            body = json.loads(_body(response, _LONGEST_ERROR))
        raise _refused(self.address, status, body)

    def _late(self) -> EngineError:
        self.health.bad("it did not answer in time")
        return EngineError(
            f"the server {self.address.origin} did not answer in time",
            "See the options silence_s and timeout_s, and the server's log.",
        )


def _body(response: Response, most: int | None = None) -> bytes:
    """Read an answer to its end, or until it has so many bytes."""
    data = bytearray()
    while (most is None or len(data) < most) and (part := response.read()):
        data += part
    return bytes(data)


def _parsed(data: bytes) -> Any:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise EngineAnswerError("the server's answer is no JSON object", "See the server's log.")
    return found


def _refused(address: Address, status: int, body: Any) -> MindfulError:
    """Tell what a server refused. Its own words may repeat the prompt or the key, and errors are logged."""
    error = body.get("error") if isinstance(body, dict) else None
    kinds = [error.get(key) for key in ("type", "code")] if isinstance(error, dict) else []
    named = [kind for kind in kinds if isinstance(kind, str) and len(kind) < 60 and kind.isidentifier()]
    if any("context" in kind for kind in named):
        return ContextLengthError(
            f"the prompt has more tokens than the server {address.origin} takes",
            "Shorten it, or give the server a longer context.",
        )
    if status in (401, 403):
        return AddressError(
            f"the server {address.origin} refuses the key (status {status})",
            "The owner of the database server writes the key behind the address in the file mindful.servers.",
        )
    return EngineAnswerError(
        f"the server {address.origin} refuses the request: status {status}{' ' + named[0] if named else ''}",
        "See the server's log; SELECT mindful_status() shows what is known of it.",
    )
