"""mindful worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import mindful_client
import psycopg
import pytest
from click.testing import CliRunner
from mindful_client.cli import main
from support.clock import Deadline

PACKAGES = str(Path(mindful_client.__file__).parents[1])

# It tries again after half a second, not after five.
LAUNCH = (
    "import sys; from mindful_client.cli import main; "
    "sys.modules['mindful_client.cli.worker']._PAUSE_S = 0.5; main()"
)
COMMAND = [sys.executable, "-u", "-c", LAUNCH, "worker"]


@pytest.fixture(autouse=True)
def queueing(quick: None, admin: psycopg.Connection) -> None:
    admin.execute("""select setting_set('embedding_mode', '"async"', 'global')""")


@pytest.fixture
def start(dsn_of: Mapping[str, str]) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts workers of a role."""
    started: list[subprocess.Popen[str]] = []

    def worker(role: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            COMMAND,
            env=os.environ | {"MINDFUL_DSN": dsn_of[role], "PYTHONPATH": PACKAGES},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield worker
    for process in started:
        process.kill()
        process.communicate()


def remember(connection: psycopg.Connection, number: int) -> None:
    connection.execute(
        "select memory_insert_many(jsonb_agg(jsonb_build_object('content', 'note ' || n)))"
        " from generate_series(1, %s) n",
        (number,),
    )


def wait_until_empty(db: psycopg.Connection) -> None:
    deadline = Deadline()
    while db.execute("select from embedding_job").fetchone() is not None:
        assert not deadline.passed()
        time.sleep(0.05)


def test_it_ends_when_nothing_waits(dsn_of: Mapping[str, str], ana: psycopg.Connection) -> None:
    remember(ana, 100)
    done = CliRunner().invoke(main, ["worker", "--once"], env={"MINDFUL_DSN": dsn_of["ana"]})
    assert done.exit_code == 0
    lines = [line.split("  ")[-1] for line in done.stdout.splitlines()]
    assert lines == ["64 embedded", "36 embedded", "Stopped after 100 embeddings."]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_embeds_what_comes_until_it_is_stopped(
    number: signal.Signals,
    start: Callable[[str], subprocess.Popen[str]],
    ana: psycopg.Connection,
    bob: psycopg.Connection,
    db: psycopg.Connection,
) -> None:
    worker = start("admin")
    for connection in (ana, bob):
        remember(connection, 3)
        wait_until_empty(db)
    worker.send_signal(number)
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert output.splitlines()[-1] == "Stopped after 6 embeddings."


def test_it_connects_again(
    start: Callable[[str], subprocess.Popen[str]], ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    worker = start("ana")
    remember(ana, 3)
    wait_until_empty(db)
    db.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'mindful_client'"
    )
    remember(ana, 3)
    wait_until_empty(db)
    worker.terminate()
    output, _ = worker.communicate(timeout=60)
    assert "mindful: " in output
    assert "Stopped after 6 embeddings." in output


def test_it_forgets_what_is_due(ana: psycopg.Connection, dsn_of: Mapping[str, str]) -> None:
    remember(ana, 3)
    ana.execute(
        "update memory set created_at = now() - interval '100 days' where id = (select min(id) from memory)"
    )
    for days, said in (("200", False), ("50", True)):
        ana.execute("select setting_set('retention_fact_days', %s)", (days,))
        done = CliRunner().invoke(main, ["worker", "--once"], env={"MINDFUL_DSN": dsn_of["ana"]})
        assert ("1 memories deleted by retention" in done.stdout) == said, done.output
    assert ana.execute("select count(*) from memory").fetchone() == (2,)


def test_it_adapts_where_that_is_asked_for(ana: psycopg.Connection, dsn_of: Mapping[str, str]) -> None:
    ana.execute(
        """with decided as (
               insert into decision (model, with_memory, signal_tier, signals, probability, action, reason)
               select 'scripted', false, 0, '{}', 0.5, 'flag', 'x' from generate_series(1, 30) returning id
           )
           insert into outcome (decision_id, correct, grader) select id, true, 'rule' from decided"""
    )
    for arguments, said in (
        (["--once"], False),
        (["--once", "--adapt"], True),
        (["--once", "--adapt"], False),
    ):
        done = CliRunner().invoke(main, ["worker", *arguments], env={"MINDFUL_DSN": dsn_of["ana"]})
        assert done.exit_code == 0, done.output
        assert ("settings adapted for 1" in done.stdout) == said
    assert ana.execute("select count(*) from tuning").fetchone() == (4,)


def test_a_server_that_is_not_there_is_an_error() -> None:
    done = CliRunner().invoke(main, ["worker"], env={"MINDFUL_DSN": "host=/nowhere"})
    assert done.exit_code == 1
    assert done.stderr.startswith("mindful: ")
