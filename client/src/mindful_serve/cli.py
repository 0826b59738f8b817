"""mindful serve."""

from __future__ import annotations

import asyncio
import logging
import math
import sys

import click
import uvicorn
from mindful_client.errors import InvalidInputError
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from mindful_serve import audit
from mindful_serve.app import application
from mindful_serve.settings import Settings, is_loopback


class Protocol(H11Protocol):
    """uvicorn's protocol, which closes a connection that sends no request or reads no answer.

    uvicorn closes an idle connection, but waits without end once a byte of the next request is there.
    """

    patience_s = Settings.read_s
    """Seconds in which a connection must have sent a request's head, or read a part of the answer."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        # Closing would wait until the client has read what was sent.
        self.app_state = self.app_state | {"abort": transport.abort}
        self._wait(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Start to wait for the next request."""
        answered = self.cycle
        super().on_response_complete()
        self._wait(answered)

    def _wait(self, answered: RequestResponseCycle | None, unread: float = math.inf) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(self.patience_s, self._close_unless_begun, answered, unread)

    def _close_unless_begun(self, answered: RequestResponseCycle | None, unread: float) -> None:
        if self.cycle is not answered:
            return
        left = self.transport.get_write_buffer_size()
        if not left:
            self.transport.close()
        elif left < unread:
            self._wait(answered, left)
        else:
            self.transport.abort()


def run(settings: Settings) -> None:
    """Serve until a signal ends it."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    for name in ("psycopg.pool", "mcp"):
        logging.getLogger(name).setLevel(logging.ERROR)
    config = uvicorn.Config(
        application(settings),
        host=settings.host,
        port=settings.port,
        http=type("Protocol", (Protocol,), {"patience_s": settings.read_s}),
        access_log=False,
        server_header=False,
        limit_concurrency=1000,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=10,
    )
    uvicorn.Server(config).run()


def check(settings: Settings) -> None:
    """Refuse what would let strangers in."""
    if not settings.needs_key and not is_loopback(settings.host):
        raise InvalidInputError(
            f"without keys the service listens on this machine only, and --host is {settings.host}",
            hint="Make a key with `mindful key create NAME --for TENANT`, and start it with --keys.",
        )
    if settings.needs_key and settings.tenant is not None:
        raise InvalidInputError("--keys and --tenant are given", hint="A key says which tenant it acts for.")
    if settings.audits_contents:
        audit.check()


def parsed_aliases(given: tuple[str, ...]) -> dict[str, str]:
    """Read NAME=MODEL."""
    aliases = {}
    for one in given:
        name, separator, model = one.rpartition("=")
        if not (separator and name and model):
            raise click.BadParameter(f"{one!r} is not NAME=MODEL", param_hint="--alias")
        aliases[name] = model
    return aliases
