"""PgBouncer in transaction mode, before the server of a connection string."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from support.clock import Deadline


@contextmanager
def pgbouncer(dsns: Sequence[str]) -> Iterator[list[str]]:
    """Give connection strings that lead over one PgBouncer, which has one server connection a database and role."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.fail("pgbouncer is not installed: run `make test`", pytrace=False)
    targets = [conninfo_to_dict(dsn) for dsn in dsns]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Not pytest's folder, which the user that a root's PgBouncer becomes could not read.
    with tempfile.TemporaryDirectory(prefix="pgbouncer") as folder:
        os.chmod(folder, 0o755)
        users = Path(folder, "users.txt")
        users.write_text("".join(f'"{target["user"]}" "{target["password"]}"\n' for target in targets))
        configuration = Path(folder, "pgbouncer.ini")
        configuration.write_text(
            f"""[databases]
* = host={targets[0]["host"]} port={targets[0]["port"]}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = 1
"""
        )
        # Who may enter the folder of the server's socket: its own user.
        user = ["-u", "postgres"] if os.geteuid() == 0 else []
        with subprocess.Popen(
            [program, "-q", *user, str(configuration)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as running:
            try:
                changed = {"host": "127.0.0.1", "port": port}
                over = [make_conninfo("", **target | changed) for target in targets]
                _wait(running, over[0])
                yield over
            finally:
                running.terminate()


def _wait(running: subprocess.Popen[bytes], dsn: str) -> None:
    end = Deadline()
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            assert running.poll() is None, "pgbouncer ended"
            if end.passed():
                raise
            time.sleep(0.05)
