"""A primary and its streaming standby, both clusters of their own, which tests may kill and promote."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from support.query import one
from support.sources import ROOT

STANDBY = "standby"
_SCRIPT = ROOT / "extension" / "setup" / "cluster.sh"
_SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class Pair:
    """The folder of both, the directory of their sockets, and their ports."""

    state: Path
    sockets: str
    ports: tuple[int, int]

    def dsn(self, *servers: int, **parameters: str) -> str:
        """Return a connection string of the primary (0), the standby (1), or of several servers in an order."""
        ports = ",".join(str(self.ports[one]) for one in servers)
        hosts = ",".join([self.sockets] * len(servers))
        return make_conninfo(
            "", host=hosts, port=ports, **{"user": "postgres", "dbname": "mindful"} | parameters
        )

    def data(self, server: int) -> Path:
        """Return the data directory."""
        return self.state / ("data", STANDBY)[server]

    def kill(self, server: int) -> None:
        """Kill a server's processes at once, as a power failure would."""
        postmaster = int((self.data(server) / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (postmaster, *map(int, children)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def promote(self) -> None:
        """Make the standby the primary, and wait until it takes writes."""
        self.run("pg_ctl", "-D", str(self.data(1)), "-w", "promote")

    def caught_up(self) -> None:
        """Wait until the standby shows what the primary has committed."""
        with (
            psycopg.connect(self.dsn(0), autocommit=True) as primary,
            psycopg.connect(self.dsn(1)) as standby,
        ):
            standby.autocommit = True
            position = one(primary, "select pg_current_wal_insert_lsn()")
            while not one(standby, "select pg_last_wal_replay_lsn() >= %s::pg_lsn", position):
                pass

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL."""
        run(self.state, program, *arguments)


def run(state: Path, program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL as the servers' user, in the servers' environment."""
    home = Path(os.environ.get("MINDFUL_HOME", ROOT / ".mindful"))
    programs = f"/usr/lib/postgresql/{(state / 'data' / 'PG_VERSION').read_text().strip()}/bin"
    owner = (state / "data").owner()
    become = ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--init-groups", "--"]
    log = state / "programs.log"
    with log.open("a") as errors:
        done = subprocess.run(
            [*(become if os.geteuid() == 0 else []), f"{programs}/{program}", *arguments],
            env={
                "PATH": f"{home}/venv/bin:{programs}:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "PYTHONNOUSERSITE": "1",
            },
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            check=False,
        )
    assert done.returncode == 0, log.read_text()


@contextmanager
def pair() -> Iterator[Pair]:
    """Make both, with the extension and the default models; commits on the primary wait for the standby."""
    state = Path(
        tempfile.mkdtemp(prefix="mindful-pair.", dir=_SHARED if os.access(_SHARED, os.W_OK) else None)
    )
    state.chmod(0o755)
    environment = os.environ | {"MINDFUL_STATE": str(state), "MINDFUL_DURABLE": "off", "MINDFUL_PORT": ""}
    try:
        subprocess.run([_SCRIPT, "up"], env=environment, check=True, capture_output=True)
        dsn = subprocess.run(
            [_SCRIPT, "dsn"], env=environment, check=True, capture_output=True, text=True
        ).stdout
        yield _replicated(state, dsn.strip())
    finally:
        for folder in (STANDBY, "data"):
            if (state / folder / "postmaster.pid").exists():
                with suppress(AssertionError):  # as it was killed
                    run(state, "pg_ctl", "-D", str(state / folder), "-m", "immediate", "stop")
        shutil.rmtree(state)


def _replicated(state: Path, dsn: str) -> Pair:
    given = conninfo_to_dict(dsn)
    port = int(str(given["port"]))
    with psycopg.connect(dsn, autocommit=True) as primary:
        made = Pair(state, str(given["host"]), (port, port + 1))
        target = made.data(1)
        target.mkdir(mode=0o700)
        shutil.chown(target, (state / "data").owner(), (state / "data").group())
        made.run(
            "pg_basebackup", "-d", make_conninfo(dsn, dbname=None), "-D", str(target), "-R", "-c", "fast"
        )
        options = f"-c port={port + 1} -c cluster_name={STANDBY} -c logging_collector=off"
        made.run("pg_ctl", "-D", str(target), "-w", "-o", options, "-l", f"{target}/start.log", "start")
        primary.execute(f"alter system set synchronous_standby_names = '{STANDBY}'".encode())
        primary.execute("alter system set synchronous_commit = 'on'")
        primary.execute("select pg_reload_conf()")
    return made
