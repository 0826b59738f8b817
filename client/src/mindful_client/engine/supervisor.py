"""Starts a server for each model, and starts it again if it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mindful_client.engine.size import Size

_LOOK_S = 0.2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_STEADY_S = 60.0
"""After so long a server that ends is started again at once."""
_STOP_S = 10.0


@dataclass(frozen=True)
class Served:
    """A model file and the socket that it is served on."""

    name: str
    kind: str
    file: str
    socket: str
    size: Size
    llama_server: str | None = None
    """The program that serves it, in the place of the package xllamacpp."""

    @property
    def address(self) -> str:
        """The address that model_serve takes."""
        return f"unix:{self.socket}"


class _Child:
    """The server of one model."""

    def __init__(self, served: Served, tell: Callable[[str], None]) -> None:
        self.served = served
        self.ready = False
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._next = 0.0

    def look(self) -> None:
        """Start the server if it does not run."""
        if self._process is None:
            if time.monotonic() >= self._next:
                self._start()
        elif (status := self._process.poll()) is not None:
            if time.monotonic() - self._started > _STEADY_S:
                self._pause_s = _FIRST_PAUSE_S
            self._tell(f"{self.served.name}: the server ended ({status}), again in {self._pause_s:g} s")
            self._process, self.ready = None, False
            self._next = time.monotonic() + self._pause_s
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def healthy(self) -> bool:
        """Tell whether the server has loaded its model."""
        connection = http.client.HTTPConnection("localhost", timeout=2)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(2)
        try:
            connection.sock.connect(self.served.socket)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """End the server, and remove its socket."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        Path(self.served.socket).unlink(missing_ok=True)

    def _start(self) -> None:
        # A killed server leaves its socket, which the next one could not make.
        Path(self.served.socket).unlink(missing_ok=True)
        described = {key: value for key, value in asdict(self.served).items() if key != "size"}
        described |= asdict(self.served.size)
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mindful_client.engine.server", json.dumps(described)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"OMP_WAIT_POLICY": "passive", "GGML_NO_BACKTRACE": "1"},
        )


def run(models: Sequence[Served], ready: Callable[[Served], None], tell: Callable[[str], None]) -> None:
    """Serve models until SIGTERM or SIGINT; `ready` is called once for each, when it first answers."""
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: stopped.append(number))
    children = [_Child(model, tell) for model in models]
    announced: set[str] = set()
    with contextlib.ExitStack() as stack:
        for child in children:
            stack.callback(child.stop)
        while not stopped:
            for child in children:
                child.look()
                if not child.ready and child.healthy():
                    child.ready = True
                    tell(f"{child.served.name}: {child.served.size.slots} slots on {child.served.address}")
                    if child.served.name not in announced:
                        ready(child.served)
                        announced.add(child.served.name)
            time.sleep(_LOOK_S)
