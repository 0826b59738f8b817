"""Where a model's server is: an address that is allowed, and the key that is sent there."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mindful.core.apart import Worker
from mindful.core.errors import AddressError, EngineError, InvalidParameterError, NotReadyError
from mindful.core.ports import Interrupts

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

SERVERS = "mindful.servers"
"""The file in the data directory that names other servers than those of this machine, and keys."""
_LOOK_S = 0.02
_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "Give http://HOST:PORT/v1, https://HOST/v1 or unix:/PATH/engine.sock."

Target = tuple[int, object]
"""A socket's family and where to connect it."""


class Address(NamedTuple):
    """A server's address, which holds no secret."""

    scheme: str
    host: str
    """Of the scheme unix the socket's path."""
    port: int
    path: str
    """What stands before the names of functions, such as /v1."""

    @property
    def origin(self) -> str:
        """The address as the file of servers has it."""
        if self.scheme == "unix":
            return f"unix:{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def root(self) -> str:
        """What stands before the names of functions beside those of OpenAI."""
        return self.path.removesuffix("/v1")


class Entry:
    """What the file of servers says of an address. Neither its text nor its JSON has the key."""

    def __init__(self, listed: bool, key: str | None, networks: tuple[str, ...]) -> None:
        self.listed = listed
        self.key = key
        self.networks = networks


def parse(source: str) -> Address:
    """Read a model's source; error 22023 where it is no address of a server."""
    if source.startswith("unix:"):
        path = source.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) > 107:
            raise InvalidParameterError(
                "source is not the absolute path of a Unix socket of at most 107 bytes", _EXAMPLE
            )
        return Address("unix", path, 0, "/v1")
    from urllib.parse import urlsplit  # with ipaddress 4 ms of a new connection, and a socket needs neither

    try:
        parts = urlsplit(source)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidParameterError("source cannot be read as an address", _EXAMPLE) from None
    if parts.username is not None or parts.password is not None:
        # The message does not repeat the source, which holds a secret.
        raise InvalidParameterError(
            "source holds a user's name or password", f"Write keys into the file {SERVERS}."
        )
    plain = source.isascii() and source.isprintable() and " " not in source and "\\" not in source
    if parts.scheme not in _PORTS or not host or not plain or parts.query or parts.fragment or port == 0:
        raise InvalidParameterError("source is no address of a server", _EXAMPLE)
    return Address(parts.scheme, host, port or _PORTS[parts.scheme], parts.path.rstrip("/"))


def entry(address: Address, directory: str) -> Entry:
    """Look an address up in the file of servers."""
    try:
        with open(os.path.join(directory, SERVERS), encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            if found.st_mode & 0o077 or found.st_uid not in (os.geteuid(), 0):
                raise NotReadyError(
                    f"other users may read or write the file {SERVERS}",
                    f"chmod 600 {SERVERS} in the data directory, owned by the server's user.",
                )
            lines = [line.split("#")[0].split() for line in file]
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError):
        raise NotReadyError(
            f"the file {SERVERS} cannot be read", "It must be UTF-8, in the data directory, and a plain file."
        ) from None
    networks = tuple(words[0] for words in lines if words and "/" in words[0] and ":/" not in words[0])
    for words in lines:
        if words and _origin(words[0]) == address.origin:
            return Entry(True, words[1] if len(words) > 1 else None, networks)
    return Entry(False, None, networks)


def targets(address: Address, found: Entry, interrupts: Interrupts) -> list[Target]:
    """List where to connect to; error 42501 where the server's owner does not allow it.

    A name is looked up once for each connection, and what was found is what is checked and connected to: a name that
    leads elsewhere a moment later is of no use.
    """
    if address.scheme == "unix":
        _check_socket(address, found)
        return [(socket.AF_UNIX, address.host)]
    resolved = list(_resolve(address, interrupts))
    for _, (host, *_rest) in resolved:
        _check_ip(address, found, host)
    return list(resolved)


def _origin(text: str) -> str | None:
    try:
        return parse(text).origin
    except InvalidParameterError:
        return None


def _check_socket(address: Address, found: Entry) -> None:
    try:
        found_there = os.stat(address.host)
    except OSError:
        found_there = None
    # One error for both: an administrator could ask for any file, and learn which are there.
    if found_there is None or not stat.S_ISSOCK(found_there.st_mode):
        raise EngineError(
            f"there is no socket {address.host}", "Start the server, for instance with: mindful engine."
        )
    # Where it is down, whoever may write in the directory could listen in its place.
    if not found.listed and found_there.st_uid not in (os.geteuid(), 0):
        raise AddressError(
            f"the socket {address.host} belongs to another operating system user",
            f"Run the engine as the user of the database server, or list the address in the file {SERVERS}.",
        )


def _check_ip(address: Address, found: Entry, text: str) -> None:
    from ipaddress import ip_address

    ip = ip_address(text.split("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or ip
    literal = _is_literal(address.host)
    if ip.is_loopback and (literal or address.host == "localhost"):
        return
    public = ip.is_global and not ip.is_multicast
    if found.listed and (literal or public or _within(ip, found.networks)):
        return
    raise AddressError(
        f"the address {address.origin} is not allowed",
        f"The owner of the server allows it by a line in the file {SERVERS} of the data directory"
        + (": a name of a private address also needs its network there." if found.listed else "."),
    )


def _is_literal(host: str) -> bool:
    from ipaddress import ip_address

    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _within(ip: IPv4Address | IPv6Address, networks: tuple[str, ...]) -> bool:
    from ipaddress import ip_network

    for text in networks:
        try:
            if ip in ip_network(text):
                return True
        except ValueError:
            continue
    return False


def _resolve(address: Address, interrupts: Interrupts) -> Iterator[tuple[int, tuple[str, int]]]:
    """Look a name up, in a thread of its own where that may take time."""
    if address.host == "localhost" or _is_literal(address.host):
        found = _looked_up(address)
    else:
        # Not apart: a lookup can take half a minute, and a cancel does not wait for it.
        thread = Worker(partial(_looked_up, address))
        thread.start()
        while thread.is_alive():
            interrupts.check()
            thread.join(_LOOK_S)
        found = thread.result()
    if not found:
        raise EngineError(f"the name of {address.origin} is not known", "Check the model's source.")
    return iter(found)


def _looked_up(address: Address) -> list[tuple[int, tuple[str, int]]]:
    try:
        rows = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys((family, where) for family, _, _, _, where in rows))  # type: ignore[misc]
