"""A cluster that listens to other machines, as the image does."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support import one
from support.attempt import Attempt
from support.files import readable_folder

SCRIPT = Path(__file__).parents[2] / "extension" / "setup" / "cluster.sh"


IN_CONTAINER = (
    *("setpriv", "--bounding-set"),
    "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw"
    ",+sys_chroot,+mknod,+audit_write,+setfcap",
)
"""What root may do in a container of Docker."""


@pytest.fixture(scope="module")
def listening() -> Iterator[Path]:
    """Directory of a second cluster, started as the image starts its own, with the models and packages of the first."""
    with readable_folder() as state, (state / "output").open("w") as output:
        server = subprocess.Popen(
            [*(IN_CONTAINER if os.geteuid() == 0 else ()), SCRIPT, "foreground"],
            env=os.environ | {"MINDFUL_STATE": str(state), "MINDFUL_LISTEN": "*", "MINDFUL_PORT": ""},
            stdout=output,
            stderr=output,
        )
        while not _serves(state, server.pid):
            assert server.poll() is None, (state / "output").read_text()
            time.sleep(0.1)
        yield state
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0


def _serves(state: Path, pid: int) -> bool:
    """Whether the process became the server, which takes connections."""
    lines = state / "data" / "postmaster.pid"
    return lines.exists() and lines.read_text().split("\n")[:1] == [str(pid)] and "ready" in lines.read_text()


def test_connections_of_other_machines(listening: Path, attempt: Attempt) -> None:
    """Connects over TCP without TLS, without a password, and as the superuser."""
    port = (listening / "port").read_text().strip()
    secrets = {
        "postgres": (listening / "password").read_text().strip(),
        "client": (listening / "client-password").read_text().strip(),
    }

    def connect(user: str, password: str, sslmode: str) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1",
            port=port,
            dbname="mindful",
            user=user,
            password=password,
            sslmode=sslmode,
            autocommit=True,
        )

    for user, password, sslmode in (
        ("postgres", secrets["postgres"], "require"),
        ("postgres", secrets["postgres"], "disable"),
        ("client", secrets["client"], "disable"),
        ("client", secrets["postgres"], "require"),
    ):
        with pytest.raises(psycopg.OperationalError):
            connect(user, password, sslmode)
        attempt.answered("stranger", "no connection")
    with connect("client", secrets["client"], "require") as connection:
        assert connection.execute("select ssl from pg_stat_ssl where pid = pg_backend_pid()").fetchone() == (
            True,
        )
        assert connection.execute(
            "select rolsuper from pg_roles where rolname = current_user"
        ).fetchone() == (False,)
        assert connection.execute(
            "select memory_insert('The safe opens with 4711.') is not null"
        ).fetchone() == (True,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("copy (select 1) to program 'id'")


def test_files_of_the_private_cluster(listening: Path) -> None:
    """Reads keys, passwords and data as another user of the machine."""
    for name in ("password", "client-password", "data", "tls", "tls/server.key"):
        assert (listening / name).stat().st_mode & 0o077 == 0, name


def test_files_that_the_server_loads(db: psycopg.Connection) -> None:
    """Replaces a package or a model that the server loads, as another user of the machine."""
    loaded = [Path(one(db, "select python_prefix from mindful_status()"))]
    loaded += [Path(source) for (source,) in db.execute("select source from model where source ~ '^/'")]
    assert len(loaded) > 2
    modes = {
        path: os.lstat(path).st_mode
        for root in loaded
        for path in (str(root), *map(str, root.parents), *_under(root))
    }
    assert len(modes) > 1000
    writable = [path for path, mode in modes.items() if not stat.S_ISLNK(mode) and _may_be_replaced(mode)]
    assert writable == []
    assert _may_be_replaced(0o40777)
    # The installed copy belongs to root, whoever installs it.
    commands = (SCRIPT.parents[2] / "docs" / "installation.md").read_text()
    assert "sudo install -d /opt/mindful" in commands
    assert re.findall(r"chown|chmod|install [^\n]*-[ogm] ", commands) == []


def _under(root: Path) -> Iterator[str]:
    """Yield all paths below a folder."""
    for folder, folders, files in os.walk(root):
        yield from (f"{folder}/{name}" for name in (*folders, *files))


def _may_be_replaced(mode: int) -> bool:
    """Whether others may write, but in a directory where they may not delete what is not theirs."""
    return bool(mode & 0o022) and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX)
