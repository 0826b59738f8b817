"""Jobs of pg_cron, in the database that holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import psycopg
import pytest
from support.cluster import Cluster


@pytest.fixture
def home(cluster: Cluster) -> Iterator[psycopg.Connection]:
    """The superuser, where pg_cron keeps its jobs."""
    with cluster.connect() as connection:
        yield connection


@pytest.fixture
def granted(home: psycopg.Connection, roles: Mapping[str, str]) -> Iterator[None]:
    """Bob may use the schema of pg_cron, as who schedules jobs must."""
    home.execute(f'grant usage on schema cron to "{roles["bob"]}"')
    yield
    home.execute(f'revoke usage on schema cron from "{roles["bob"]}"')
    home.execute("delete from cron.job where username = %s", (roles["bob"],))


@pytest.fixture
def there(
    cluster: Cluster, roles: Mapping[str, str], watch: Callable[[psycopg.Connection, str], psycopg.Connection]
) -> Iterator[psycopg.Connection]:
    """Bob, where pg_cron keeps its jobs."""
    with psycopg.connect(cluster.dsn(role=roles["bob"]), autocommit=True) as connection:
        yield watch(connection, "bob")


def test_jobs_without_the_right(there: psycopg.Connection) -> None:
    """Reads and makes jobs without a right to the schema cron."""
    for statement in (
        "select * from cron.job",
        "select * from cron.job_run_details",
        "select cron.schedule('* * * * *', 'select 1')",
        "select cron.unschedule(1)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            there.execute(statement)


def test_jobs_of_others(home: psycopg.Connection, granted: None, there: psycopg.Connection) -> None:
    """Reads, alters and takes over jobs of others, with the right to make its own."""
    jobs = home.execute("select jobid, jobname, username, command from cron.job order by jobid").fetchall()
    assert jobs
    for table in ("job", "job_run_details"):
        assert there.execute(f"select * from cron.{table} where username <> current_user").fetchall() == []
    for statement in (
        "select cron.unschedule(%s)",
        "select cron.alter_job(%s, command => 'select 1')",
        "update cron.job set command = 'select 1' where jobid = %s",
        "update cron.job set username = 'postgres' where jobid <> %s",
        "select cron.schedule_in_database('x', '* * * * *', 'select ' || %s, 'mindful', 'postgres')",
    ):
        with pytest.raises(psycopg.Error):
            there.execute(statement, (jobs[0][0],))
    assert (
        home.execute("select jobid, jobname, username, command from cron.job order by jobid").fetchall()
        == jobs
    )


def test_words_in_jobs(home: psycopg.Connection, granted: None, there: psycopg.Connection) -> None:
    """Looks for texts in the commands of jobs."""
    assert there.execute("select command from cron.job").fetchall() == []
    commands = home.execute("select command from cron.job where jobname ~ '^mindful_'").fetchall()
    assert commands
    assert all("'" not in command for (command,) in commands)
