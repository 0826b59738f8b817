"""Only so many connections run a model at once."""

import threading
import time

import psycopg
import pytest
from support import Connect, fails

SLOTS_TAKEN = (
    "select count(*) from pg_locks where locktype = 'advisory' and classid = _slot_class()::oid and granted"
)


@pytest.fixture
def one_slot(admin: psycopg.Connection) -> None:
    """A server with one slot for all."""
    admin.execute("select setting_set('model_slots', '1', 'global')")


def test_a_slot_is_held_while_a_model_runs_and_never_after(
    ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    for call in (
        "llm_generate('Hi', max_tokens => 2)",
        "llm_embed('Hi')",
        "llm_chat('Hi', max_tokens => 2)",
        "memory_insert('Hi there')",
    ):
        ana.execute(f"select {call}")
        assert db.execute(SLOTS_TAKEN).fetchone() == (0,), call
    seen = []
    thread = threading.Thread(
        target=ana.execute,
        args=("select llm_generate('Write a very long story about the sea.', max_tokens => 200)",),
    )
    thread.start()
    while thread.is_alive():
        seen.append(db.execute(SLOTS_TAKEN).fetchone())
        time.sleep(0.05)
    assert (1,) in seen
    assert db.execute(SLOTS_TAKEN).fetchone() == (0,)


@pytest.mark.parametrize("stop", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_stopped_call_gives_its_slot_back(one_slot: None, connect: Connect, stop: str) -> None:
    busy, other = connect("ana"), connect()
    busy.execute("select llm_generate('Hi', max_tokens => 1)")
    timer = threading.Timer(0.5, other.execute, args=(f"select {stop}(%s)", (busy.info.backend_pid,)))
    timer.start()
    with pytest.raises(psycopg.Error):
        busy.execute("select llm_generate('Write a very long story about the sea.', max_tokens => 1500)")
    timer.join()
    deadline = time.monotonic() + 5
    while other.execute(SLOTS_TAKEN).fetchone() != (0,):
        assert time.monotonic() < deadline
    assert connect("bob").execute("select llm_generate('Hi', max_tokens => 1)").fetchone()


def test_a_call_that_waits_too_long_fails_and_says_so(one_slot: None, connect: Connect) -> None:
    holder, waiter = connect(), connect("bob")
    holder.execute("select pg_advisory_lock(_slot_class(), 1)")
    waiter.execute("select setting_set('model_slot_wait_ms', '100')")
    for call in ("llm_generate('Hi')", "llm_embed('Hi')", "llm_stream('Hi')", "memory_insert('Hi')"):
        with fails("55P03", hint="Try again"):
            waiter.execute(f"select {call}")
    assert waiter.execute("select count(*) from memory").fetchone() == (0,)
    holder.execute("select pg_advisory_unlock_all()")
    assert waiter.execute("select llm_generate('Hi', max_tokens => 1)").fetchone()
    assert waiter.execute("show lock_timeout").fetchone() == ("0",)


def test_a_waiting_call_can_be_cancelled(one_slot: None, connect: Connect) -> None:
    holder, waiter = connect(), connect("bob")
    holder.execute("select pg_advisory_lock(_slot_class(), 1)")
    waiter.execute("set statement_timeout = '200ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        waiter.execute("select llm_embed('Hi')")


def test_a_resting_cursor_holds_no_slot(one_slot: None, connect: Connect) -> None:
    streaming, other = connect("ana"), connect("bob")
    with streaming.transaction(), streaming.cursor(name="stream") as cursor:
        cursor.execute("select llm_stream('Write a very long story about the sea.', max_tokens => 20)")
        assert cursor.fetchone()
        assert other.execute("select llm_generate('Hi', max_tokens => 1)").fetchone()
        assert len(cursor.fetchall()) > 5


def test_a_long_call_lets_short_ones_go_first(one_slot: None, connect: Connect) -> None:
    long, short = connect("ana"), connect("bob")
    for connection in (long, short):
        connection.execute("select llm_generate('Hi', max_tokens => 1)")
    finished: list[str] = []

    def tell() -> None:
        long.execute("select llm_generate('Write a very long story about the sea.', max_tokens => 400)")
        finished.append("long")

    thread = threading.Thread(target=tell)
    thread.start()
    time.sleep(0.3)
    short.execute("select llm_generate('Hi', max_tokens => 1)")
    finished.append("short")
    thread.join()
    assert finished == ["short", "long"]


def test_the_wait_is_recorded(one_slot: None, connect: Connect) -> None:
    holder, waiter = connect(), connect("bob")
    waiter.execute("select llm_generate('Hi', max_tokens => 1)")
    holder.execute("select pg_advisory_lock(_slot_class(), 1)")
    timer = threading.Timer(0.4, holder.execute, args=("select pg_advisory_unlock_all()",))
    timer.start()
    waiter.execute("select llm_generate('Hi again', max_tokens => 1)")
    timer.join()
    rows = waiter.execute("select slot_wait_ms from generation order by id").fetchall()
    assert rows[0][0] < 200 < rows[1][0]


MANY = "select count(*) from llm_classify_many(array(select 'Text ' || n from generate_series(1, 150) n), '{good,bad}')"


def test_a_batch_takes_the_slots_that_are_free_and_gives_them_to_who_comes(
    admin: psycopg.Connection, connect: Connect, db: psycopg.Connection
) -> None:
    admin.execute("select setting_set('model_slots', '3', 'global')")
    batch, other = connect("ana"), connect("bob")
    for connection in (batch, other):
        connection.execute("select llm_generate('Hi', max_tokens => 1)")
    seen: set[int] = set()
    thread = threading.Thread(target=batch.execute, args=(MANY,))
    thread.start()
    while max(seen, default=0) < 3 and thread.is_alive():
        seen |= {count for (count,) in db.execute(SLOTS_TAKEN).fetchall()}
    assert max(seen) == 3
    other.execute("select llm_generate('Hi again', max_tokens => 1)")
    assert thread.is_alive(), "who came had to wait for the batch's end"
    thread.join()
    assert db.execute(SLOTS_TAKEN).fetchone() == (0,)


def test_a_batch_is_the_same_on_any_number_of_slots(
    admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    found = []
    for slots in ("1", "2", "3"):
        admin.execute("select setting_set('model_slots', %s, 'global')", (slots,))
        labels = "llm_classify_many(array(select 'It is ' || n from generate_series(1, 20) n), '{good,bad}')"
        answers = (
            "llm_generate_many(array(select 'Count to ' || n from generate_series(1, 5) n), max_tokens => 12)"
        )
        found.append(ana.execute(f"select (select array_agg(l) from {labels} l), {answers}").fetchone())
    assert found[0] == found[1] == found[2]
