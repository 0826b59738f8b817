"""Hosts in network namespaces, from which packets can be kept."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_FORWARD = """
import socket, sys, threading, time
delay = float(sys.argv[3])
def pump(a, b):
    try:
        while data := a.recv(65536):
            time.sleep(delay)
            b.sendall(data)
    except OSError:
        pass
    for one in (a, b):
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
listener = socket.create_server((sys.argv[1], 5432))
while True:
    near, _ = listener.accept()
    far = socket.socket(socket.AF_UNIX)
    far.connect(sys.argv[2])
    for pair in ((near, far), (far, near)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass
class Host:
    """A host that leads to the socket of a server, over TCP with a stack of its own."""

    name: str
    near: str
    address: str
    process: subprocess.Popen[bytes] | None = None

    def start(self, path: str, delay_s: float = 0) -> None:
        """Forward to the server, each piece of data a while later."""
        command = [
            "ip",
            "netns",
            "exec",
            self.name,
            sys.executable,
            "-c",
            _FORWARD,
            self.address,
            path,
            str(delay_s),
        ]
        self.process = subprocess.Popen(command)
        time.sleep(0.7)

    def kill(self) -> None:
        """End the server at once; the host answers that nothing listens."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def vanish(self) -> None:
        """Keep all packets of the host from leaving it."""
        ip("-n", self.name, "route", "add", "blackhole", f"{self.near}/32")

    def return_(self) -> None:
        """Let packets leave again."""
        ip("-n", self.name, "route", "del", "blackhole", f"{self.near}/32")


@contextmanager
def host(number: int, path: str) -> Iterator[Host]:
    """Make a host in a network namespace, and remove it."""
    token = secrets.token_hex(3)
    name, link = f"mindful-{token}", f"mf{token}"
    near, address = f"10.213.{number}.1", f"10.213.{number}.2"
    ip("netns", "add", name)
    made = Host(name, near, address)
    try:
        ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("addr", "add", f"{near}/30", "dev", link)
        ip("link", "set", link, "up")
        ip("-n", name, "addr", "add", f"{address}/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        made.start(path)
        yield made
    finally:
        if made.process is not None:
            made.kill()
        ip("netns", "del", name)
