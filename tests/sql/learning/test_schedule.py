"""Runs are asked for when enough is unread, and made by whoever works."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER, Cluster, fails


@pytest.fixture(autouse=True)
def quick(db: psycopg.Connection) -> None:
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))


def say(user: psycopg.Connection, number: int, role: str = "user") -> None:
    messages = [{"role": role, "content": f"I love the number {at}."} for at in range(number)]
    user.execute("select message_insert_many(session_start(), %s)", (Jsonb(messages),))


def runs(user: psycopg.Connection) -> list[tuple[str, int]]:
    return user.execute("select status, memories_processed from consolidation order by id").fetchall()


def test_enough_unread_texts_ask_for_a_run(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    ana.execute("select setting_set('consolidation_after', '5')")
    say(ana, 4)
    say(ana, 5, "assistant")
    assert runs(ana) == []
    ana.execute("listen mindful_job")
    say(ana, 1)
    assert runs(ana) == [("pending", 0)]
    assert [heard.channel for heard in ana.notifies(timeout=60, stop_after=1)] == ["mindful_job"]
    say(ana, 5)
    assert runs(ana) == [("pending", 0)]
    assert bob.execute("select consolidation_run()").fetchone() == (0,)
    ana.execute("listen mindful_consolidation")
    assert ana.execute("select consolidation_run()").fetchone() == (1,)
    assert runs(ana) == [("completed", 15)]
    assert ana.execute("select consolidation_run()").fetchone() == (0,)


def test_zero_asks_for_none(ana: psycopg.Connection) -> None:
    ana.execute("select setting_set('consolidation_after', '0')")
    say(ana, 120)
    assert runs(ana) == []


def test_at_night_everybody_is_read(
    ana: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    say(ana, 2)
    say(bob, 3)
    assert db.execute("select consolidation_run(all_unread => true)").fetchone() == (2,)
    assert (runs(ana), runs(bob)) == ([("completed", 2)], [("completed", 3)])
    assert db.execute("select current_setting('mindful.tenant', true)").fetchone() in [("",), (None,)]
    assert db.execute("select consolidation_run(all_unread => true)").fetchone() == (0,)


def test_an_administrator_runs_for_all_and_a_user_for_oneself(
    ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    say(ana, 2)
    say(bob, 3)
    assert bob.execute("select consolidation_run(all_unread => true)").fetchone() == (1,)
    assert (runs(ana), runs(bob)) == ([], [("completed", 3)])
    say(bob, 1)
    assert admin.execute("select consolidation_run(all_unread => true)").fetchone() == (2,)
    assert (runs(ana), runs(bob)) == ([("completed", 2)], [("completed", 3), ("completed", 1)])
    with fails("42501", hint=None):
        bob.execute("select _mindful.consolidation_run_all(true, 10)")


def test_the_end_of_a_run_is_told(ana: psycopg.Connection) -> None:
    ana.execute("listen mindful_consolidation")
    say(ana, 1)
    ana.execute("select memory_consolidate()")
    (heard,) = ana.notifies(timeout=60, stop_after=1)
    assert '"completed"' in heard.payload
    assert ana.info.user not in heard.payload


def test_without_pg_cron_there_is_no_schedule(ana: psycopg.Connection) -> None:
    with fails("55000", hint="mindful worker"):
        ana.execute("select consolidation_schedule()")


JOBS = """select jobname, schedule, command from cron.job
    where jobname like 'mindful\\_consolidation%' and username = current_user order by jobname"""
READ = ("mindful_consolidation", "*/5 * * * *", "select mindful.consolidation_run()")
NIGHTLY = "select mindful.consolidation_run(all_unread => true, max_tenants => 100000)"


@pytest.fixture
def cron(cluster: Cluster) -> Iterator[psycopg.Connection]:
    """The database where pg_cron keeps its jobs: `make up` loads it."""
    with cluster.connect() as connection:
        home = connection.execute("select current_setting('cron.database_name', true)").fetchone()
    if home in [None, (None,), ("",)]:
        pytest.skip("the server has not loaded pg_cron")
    with cluster.connect(home[0]) as connection:
        installed = connection.execute(
            "select count(*) from pg_extension where extname in ('pg_cron', 'mindful')"
        )
        if installed.fetchone() != (2,):
            pytest.skip(f"the database {connection.info.dbname} has no pg_cron, or no mindful")
        yield connection


def test_pg_cron_is_told_when_to_read(cron: psycopg.Connection) -> None:
    with cron.transaction(force_rollback=True):
        for schedule in ("15 3 * * *", "30 2 * * *"):
            assert cron.execute("select mindful.consolidation_schedule(%s)", (schedule,)).fetchone() == (
                True,
            )
            assert cron.execute(JOBS).fetchall() == [READ, (f"{READ[0]}_nightly", schedule, NIGHTLY)]
        with pytest.raises(psycopg.Error, match="schedule"), cron.transaction():
            cron.execute("select mindful.consolidation_schedule('at night')")
        assert len(cron.execute(JOBS).fetchall()) == 2
        assert cron.execute("select mindful.consolidation_schedule(null)").fetchone() == (False,)
        assert cron.execute(JOBS).fetchall() == []


def test_pg_cron_is_told_to_embed_and_to_forget(cron: psycopg.Connection) -> None:
    jobs = (
        "select jobname from cron.job where jobname = any (%s) and username = current_user order by jobname"
    )
    names = ["mindful_retention", "mindful_sweep", "mindful_worker"]
    with cron.transaction(force_rollback=True):
        for _ in range(2):
            assert cron.execute("select mindful.worker_schedule()").fetchone() == (True,)
            assert [name for (name,) in cron.execute(jobs, (names,))] == names
        assert cron.execute("select mindful.worker_schedule(null)").fetchone() == (False,)
        assert cron.execute(jobs, (names,)).fetchall() == []


@pytest.mark.long
def test_pg_cron_reads(cron: psycopg.Connection, database: str, ana: psycopg.Connection) -> None:
    """What pg_cron is told, told to it for the test's own database: its jobs run at full minutes."""
    say(ana, 3)
    ana.execute("listen mindful_consolidation")
    cron.execute("select cron.schedule_in_database(%s, '* * * * *', %s, %s)", (database, NIGHTLY, database))
    try:
        (heard,) = ana.notifies(timeout=100, stop_after=1)
    finally:
        cron.execute("select cron.unschedule(%s)", (database,))
    assert '"completed"' in heard.payload
    assert runs(ana) == [("completed", 3)]


def test_bad_input(ana: psycopg.Connection) -> None:
    with fails("22023"):
        ana.execute("select consolidation_run(max_tenants => 0)")
