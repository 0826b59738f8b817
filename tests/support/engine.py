"""A running `mindful engine`."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from support.clock import Deadline


class Engine:
    """A running `mindful engine`."""

    def __init__(
        self, prefix: str, dsn: str, directory: Path, user: str, arguments: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        self._log = (directory.parent / "log").open("w+")
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]
        self.process = subprocess.Popen(
            [
                *(become if os.geteuid() == 0 else []),
                *(f"{prefix}/bin/mindful", "--dsn", dsn, "engine"),
                *("--directory", str(directory), *arguments),
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd="/",
        )

    def log(self) -> str:
        """Read what it printed."""
        self._log.seek(0)
        return self._log.read()

    def wait(self, text: str, times: int = 1) -> None:
        """Wait until it has printed a text."""
        until(lambda: self.log().count(text) >= times or self.process.poll() is not None, 120)
        assert self.log().count(text) >= times, self.log()

    def close(self) -> None:
        """Kill it, if it runs."""
        self.process.kill()
        self.process.wait()
        self._log.close()

    def children(self) -> list[int]:
        """List the processes of its servers."""
        names = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(name) for name in names.split()]

    def stop(self) -> None:
        """Stop it as systemd does."""
        self.process.terminate()
        assert self.process.wait(30) == 0


def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition holds, or the time is up."""
    end = Deadline(seconds)
    while not condition() and not end.passed():
        time.sleep(0.1)


@contextmanager
def running_engine(
    db: psycopg.Connection, dsn: str, *arguments: str, count: int = 2, compiled: bool = True
) -> Iterator[Engine]:
    """Run an engine of both default models, or of `count` named ones, as the operating system user of the server.

    Embedders are served by the program that was compiled for this processor, or by xllamacpp.
    """
    row = db.execute(
        "select python_prefix, current_setting('data_directory') from mindful.mindful_status()"
    ).fetchone()
    assert row is not None
    user = pwd.getpwuid(Path(row[1]).stat().st_uid).pw_name
    folder = Path(tempfile.mkdtemp())  # the path of a socket must be short
    shutil.chown(folder, user)
    program = ("--llama-server", f"{row[0]}/bin/llama-server") if compiled else ()
    engine = Engine(row[0], dsn, folder / "engine", user, (*program, *arguments))
    try:
        engine.wait("served to all connections", count)
        yield engine
        if engine.process.returncode is None:  # no test has killed it
            engine.stop()
    finally:
        engine.close()
        shutil.rmtree(folder)
