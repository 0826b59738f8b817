"""Runs are asked for when enough is unread, and made by whoever works."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER, fails


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
    assert [heard.channel for heard in ana.notifies(timeout=1, stop_after=1)] == ["mindful_job"]
    say(ana, 5)
    assert runs(ana) == [("pending", 0)]
    assert bob.execute("select consolidation_work()").fetchone() == (0,)
    ana.execute("listen mindful_consolidation")
    assert ana.execute("select consolidation_work()").fetchone() == (1,)
    assert runs(ana) == [("completed", 15)]
    assert ana.execute("select consolidation_work()").fetchone() == (0,)


def test_zero_asks_for_none(ana: psycopg.Connection) -> None:
    ana.execute("select setting_set('consolidation_after', '0')")
    say(ana, 120)
    assert runs(ana) == []


def test_at_night_everybody_is_read(
    ana: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    say(ana, 2)
    say(bob, 3)
    assert db.execute("select consolidation_work(everyone => true)").fetchone() == (2,)
    assert (runs(ana), runs(bob)) == ([("completed", 2)], [("completed", 3)])
    assert db.execute("select current_setting('mindful.tenant', true)").fetchone() in [("",), (None,)]
    assert db.execute("select consolidation_work(everyone => true)").fetchone() == (0,)


def test_the_end_of_a_run_is_told(ana: psycopg.Connection) -> None:
    ana.execute("listen mindful_consolidation")
    say(ana, 1)
    ana.execute("select memory_consolidate()")
    (heard,) = ana.notifies(timeout=2, stop_after=1)
    assert '"completed"' in heard.payload
    assert ana.info.user not in heard.payload


def test_without_pg_cron_there_is_no_schedule(ana: psycopg.Connection) -> None:
    with fails("55000", hint="mindful worker"):
        ana.execute("select consolidation_schedule()")


def test_bad_input(ana: psycopg.Connection) -> None:
    with fails("22023"):
        ana.execute("select consolidation_work(tenants => 0)")
