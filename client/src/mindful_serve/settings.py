"""What the service is started with."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """Options of `mindful serve`."""

    dsn: str = ""
    read_dsn: str = ""
    """Where calls that only read go, such as to a standby; empty: as all others."""
    stream_dsn: str = ""
    """Parameters of connections to a router's partitions that differ from the router's."""
    host: str = "127.0.0.1"
    port: int = 8000
    needs_key: bool = False
    tenant: str | None = None
    """The tenant of all requests, where no key is needed."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Names of models that clients use, and the registered ones; the name * stands for any other."""
    sends_done: bool = True
    """Whether a stream ends with `data: [DONE]`."""
    connections: int = 8
    """Connections that run models; each holds its own context."""
    queue_s: float = 30.0
    """Seconds that a request waits for one of them before 429."""
    request_s: float = 600.0
    """Seconds that an answer may take."""
    read_s: float = 15.0
    """Seconds that a client may take to send its request, or to take a part of the answer."""
    most_bytes: int = 4 << 20
    """Bytes of a request's body."""
    origins: tuple[str, ...] = ()
    """Origins whose pages may call the service (CORS)."""
    audits_contents: bool = False
    """Whether the log tells what requests and answers said, redacted."""

    def model(self, name: str) -> str | None:
        """Return the registered name of a model; None for the default one."""
        name = self.aliases.get(name) or (name if name in ("", "default") else self.aliases.get("*", name))
        return None if name in ("", "default") else name


def is_loopback(host: str) -> bool:
    """Tell whether only programs of this machine reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
