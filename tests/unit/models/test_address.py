"""Where models behind a server may be, and who says so."""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from mindful.core.errors import (
    AddressError,
    EngineError,
    InvalidParameterError,
    NotReadyError,
)
from mindful.models.providers.openai.address import Address, entry, parse, targets
from support.clock import within
from unit.models.host import CancelledError, Host


@pytest.mark.parametrize(
    "source",
    [
        "",
        "127.0.0.1:80",
        "ftp://127.0.0.1/v1",
        "file:///etc/passwd",
        "http://",
        "http://user:sk-secret@127.0.0.1/v1",
        "http://sk-secret@127.0.0.1/v1",
        "http://:sk-secret@127.0.0.1/v1",
        "http://127.0.0.1/v1?key=sk-secret",
        "http://127.0.0.1/v1#x",
        "http://127.0.0.1:99999/v1",
        "http://127.0.0.1:0/v1",
        "http://127.0.0.1\r\nX: y/v1",
        "http://127.0.0.1\\@10.0.0.1/v1",
        "unix:relative.sock",
        "unix:" + "/x" * 60,
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(source: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        parse(source)
    assert "sk-secret" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "source",
    [
        "http://10.0.0.1/v1",
        "http://192.168.1.1/v1",
        "http://172.16.0.1:8080/v1",
        "http://169.254.169.254/v1",
        "http://[fe80::1]/v1",
        "http://[fd00:ec2::254]/v1",
        "http://[::ffff:169.254.169.254]/v1",
        "http://[::ffff:10.0.0.1]/v1",
        "http://[64:ff9b::7f00:1]/v1",
        "http://0.0.0.0/v1",
        "http://[::]/v1",
        "http://224.0.0.1/v1",
        "http://8.8.8.8/v1",
        "http://0x0a000001/v1",
        "http://167772161/v1",
        "https://1.1.1.1/v1",
    ],
)
def test_addresses_beyond_this_machine_are_refused_unless_the_owner_lists_them(
    source: str, host: Host
) -> None:
    address = parse(source)
    with pytest.raises(AddressError, match="not allowed"):
        targets(address, entry(address, host.directory()), host)


@pytest.mark.parametrize(
    "source", ["http://127.0.0.1:8080/v1", "http://127.9.9.9/v1", "http://[::1]:1/v1", "http://localhost/v1"]
)
def test_this_machine_is_allowed(source: str, host: Host) -> None:
    address = parse(source)
    assert targets(address, entry(address, host.directory()), host)


def listed(host: Host, *lines: str, mode: int = 0o600) -> None:
    path = Path(host.directory()) / "mindful.servers"
    path.write_text("\n".join(["# where models are", *lines]))
    path.chmod(mode)


def test_the_owner_allows_an_address_and_gives_its_key(host: Host) -> None:
    listed(host, "http://10.0.0.1:8080  sk-secret  # the large one", "http://10.0.0.2")
    address = parse("http://10.0.0.1:8080/v1")
    found = entry(address, host.directory())
    assert targets(address, found, host)
    assert found.key == "sk-secret"
    assert "sk-secret" not in repr(found)
    for other in ("http://10.0.0.1:8081/v1", "http://10.0.0.2:8080/v1", "https://10.0.0.1:8080/v1"):
        address = parse(other)
        found = entry(address, host.directory())
        assert found.key is None
        with pytest.raises(AddressError):
            targets(address, found, host)


def test_a_file_of_servers_that_others_may_read_is_refused(host: Host) -> None:
    listed(host, "http://10.0.0.1", mode=0o644)
    with pytest.raises(NotReadyError, match="other users"):
        entry(parse("http://10.0.0.1/v1"), host.directory())


@pytest.mark.parametrize("leads_to", ["127.0.0.1", "10.0.0.7", "169.254.169.254", "::1", "::ffff:127.0.0.1"])
def test_a_listed_name_that_leads_to_this_machine_or_network_is_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch, leads_to: str
) -> None:
    """DNS rebinding: a name of the outside is made to lead inside."""
    resolve_to(monkeypatch, leads_to)
    listed(host, "https://models.example.com")
    address = parse("https://models.example.com/v1")
    with pytest.raises(AddressError):
        targets(address, entry(address, host.directory()), host)


def test_a_name_is_looked_up_once_a_connection(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolve_to(monkeypatch, "10.0.0.7")
    listed(host, "http://gpu.internal:8080", "10.0.0.0/24")
    address = parse("http://gpu.internal:8080/v1")
    assert targets(address, entry(address, host.directory()), host) == [(socket.AF_INET, ("10.0.0.7", 8080))]
    assert asked == ["gpu.internal"]


def test_a_cancel_does_not_wait_for_a_name(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> list[Any]:
        time.sleep(1.5)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    listed(host, "http://gpu.internal")
    address = parse("http://gpu.internal/v1")
    for clock in within(0.2):
        host.cancel(clock, 0.1)
        with pytest.raises(CancelledError):
            targets(address, entry(address, host.directory()), host)


def test_a_file_that_is_no_socket_gives_the_error_of_a_missing_one(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("missing", "file"):
        address = parse(f"unix:{tmp_path / name}")
        with pytest.raises(EngineError, match="there is no socket"):
            targets(address, entry(address, host.directory()), host)


def test_another_users_socket_is_refused(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        address = parse(f"unix:{path}")
        assert targets(address, entry(address, host.directory()), host)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        if path.stat().st_uid == 0:
            os.chown(path, 54321, -1)
        with pytest.raises(AddressError, match="another operating system user"):
            targets(address, entry(address, "/nowhere"), host)


def resolve_to(monkeypatch: pytest.MonkeyPatch, ip: str) -> list[str]:
    asked: list[str] = []
    family = socket.AF_INET6 if ipaddress.ip_address(ip).version == 6 else socket.AF_INET

    def resolve(name: str, port: int, **_: object) -> list[Any]:
        asked.append(name)
        return [(family, socket.SOCK_STREAM, 6, "", (ip, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


def test_an_address_has_no_secret() -> None:
    assert parse("http://[::1]:8080/v1") == Address("http", "::1", 8080, "/v1")
    assert parse("http://[::1]:8080/v1/").origin == "http://[::1]:8080"
    assert parse("unix:/run/m/engine.sock").origin == "unix:/run/m/engine.sock"
