"""Only so many connections run a model at once."""

import os
import threading
import time
from pathlib import Path
from random import Random
from typing import LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import Connect, fails
from support.clock import Deadline, within
from support.slots import free, hold, taken, waiting


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
        assert taken(db) == 0, call
    seen = []
    thread = threading.Thread(
        target=ana.execute,
        args=("select llm_generate('Write a very long story about the sea.', max_tokens => 60)",),
    )
    thread.start()
    while thread.is_alive():
        seen.append(taken(db))
        time.sleep(0.05)
    assert 1 in seen
    assert taken(db) == 0


@pytest.mark.parametrize("stop", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_stopped_call_gives_its_slot_back(one_slot: None, connect: Connect, stop: str) -> None:
    busy, other = connect("ana"), connect()
    busy.execute("select llm_generate('Hi', max_tokens => 1)")
    timer = threading.Timer(0.5, other.execute, args=(f"select {stop}(%s)", (busy.info.backend_pid,)))
    timer.start()
    with pytest.raises(psycopg.Error):
        busy.execute("select llm_generate('Write a very long story about the sea.', max_tokens => 1500)")
    timer.join()
    deadline = Deadline()
    while taken(other):
        assert not deadline.passed()
    assert connect("bob").execute("select llm_generate('Hi', max_tokens => 1)").fetchone()


def test_a_call_that_waits_too_long_fails_and_says_so(one_slot: None, connect: Connect) -> None:
    holder, waiter = connect(), connect("bob")
    hold(holder)
    waiter.execute("select setting_set('model_slot_wait_ms', '100')")
    for call in ("llm_generate('Hi')", "llm_embed('Hi')", "llm_generate_stream('Hi')", "memory_insert('Hi')"):
        with fails("55P03", hint="Try again"):
            waiter.execute(f"select {call}")
    assert waiter.execute("select count(*) from memory").fetchone() == (0,)
    free(holder)
    assert waiter.execute("select llm_generate('Hi', max_tokens => 1)").fetchone()


def test_a_waiting_call_can_be_cancelled(one_slot: None, connect: Connect) -> None:
    holder, waiter = connect(), connect("bob")
    hold(holder)
    waiter.execute("set statement_timeout = '200ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        waiter.execute("select llm_embed('Hi')")


def test_a_resting_cursor_holds_no_slot(one_slot: None, connect: Connect) -> None:
    streaming, other = connect("ana"), connect("bob")
    with streaming.transaction(), streaming.cursor(name="stream") as cursor:
        cursor.execute(
            "select llm_generate_stream('Write a very long story about the sea.', max_tokens => 20)"
        )
        assert cursor.fetchone()
        assert other.execute("select llm_generate('Hi', max_tokens => 1)").fetchone()
        assert len(cursor.fetchall()) > 5


def test_a_long_call_lets_short_ones_go_first(brief: str, one_slot: None, connect: Connect) -> None:
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


@pytest.mark.smoke
def test_the_wait_is_recorded(one_slot: None, connect: Connect) -> None:
    holder, waiter = connect(), connect("bob")
    waiter.execute("select llm_generate('Hi', max_tokens => 1)")
    hold(holder)
    timer = threading.Timer(0.4, free, args=(holder,))
    timer.start()
    waiter.execute("select llm_generate('Hi again', max_tokens => 1)")
    timer.join()
    rows = waiter.execute("select slot_wait_ms from generation order by id").fetchall()
    assert rows[0][0] < 200 < rows[1][0]


MANY = (
    "select count(*) from unnest("
    "llm_classify_many(array(select 'Text ' || n from generate_series(1, 500) n), '{good,bad}'))"
)
LONG = "select llm_generate(repeat('why ', 1800), max_tokens => 1)"


@pytest.mark.parametrize("call", [MANY, LONG], ids=["batch", "long prompt"])
def test_the_slots_that_are_free_are_taken_and_given_to_who_comes(
    brief: str, admin: psycopg.Connection, connect: Connect, db: psycopg.Connection, call: LiteralString
) -> None:
    admin.execute("select setting_set('model_slots', '3', 'global')")
    busy, other = connect("ana"), connect("bob")
    for connection in (busy, other):
        connection.execute("select llm_generate('Hi', max_tokens => 1)")
    seen: set[int] = set()
    thread = threading.Thread(target=busy.execute, args=(call,))
    thread.start()
    while max(seen, default=0) < 3 and thread.is_alive():
        seen.add(taken(db))
    assert max(seen) == 3
    other.execute("select llm_generate('Hi again', max_tokens => 1)")
    assert thread.is_alive(), "who came had to wait for the end"
    thread.join()
    assert taken(db) == 0


def test_results_are_the_same_on_any_number_of_slots(
    admin: psycopg.Connection, ana: psycopg.Connection, brief: str, brief_file: str
) -> None:
    admin.execute(
        "select model_register('flash', 'generator', 'llama_cpp', %s, %s)",
        (brief_file, Jsonb({"flash_attention": True})),
    )
    long = "llm_generate_detail(repeat('why ', 550), model, max_tokens => 4)"
    single = f"(select array_agg(signals) from unnest('{{{brief},flash}}'::text[]) model, {long})"
    found = []
    for slots in ("1", "2", "3"):
        admin.execute("select setting_set('model_slots', %s, 'global')", (slots,))
        labels = "llm_classify_many(array(select 'It is ' || n from generate_series(1, 20) n), '{good,bad}')"
        answers = (
            "llm_generate_many(array(select 'Count to ' || n from generate_series(1, 5) n), max_tokens => 12)"
        )
        ana.execute("select model_unload()")
        found.append(
            ana.execute(
                f"select (select array_agg(l) from unnest({labels}) l), {answers}, {single}"
            ).fetchone()
        )
    assert found[0] == found[1] == found[2]


ROWS_OF_RECALL = "select count(*) from generate_series(1, 60) g, memory_recall('Oslo ' || g, 3)"


def test_no_cancel_leaves_a_slot_taken(connect: Connect) -> None:
    ana, other = connect("ana"), connect()
    ana.execute("select memory_insert('Anna lives in Oslo.'), llm_embed('Hi')")
    random, cancelled, until = Random(1), 0, Deadline(40)
    while cancelled < 300 and not until.passed():
        ana.execute(f"set statement_timeout = {random.randint(5, 40)}".encode())
        try:
            ana.execute(ROWS_OF_RECALL)
        except psycopg.errors.QueryCanceled:
            cancelled += 1
        assert taken(other) == waiting(other) == 0
    assert cancelled > 50


def test_a_waiter_gets_whichever_slot_comes_free_first(admin: psycopg.Connection, connect: Connect) -> None:
    admin.execute("select setting_set('model_slots', '2', 'global')")
    dead, brief = connect(), connect()
    waiters = [connect("bob") for _ in range(4)]
    for waiter in waiters:
        waiter.execute("select llm_embed('Hi')")
    hold(dead, 1)
    for clock in within(2):
        hold(brief, 2)
        threads = [
            threading.Thread(target=waiter.execute, args=("select llm_embed('Hi')",)) for waiter in waiters
        ]
        for thread in threads:
            thread.start()
        while waiting(dead) < len(waiters):
            time.sleep(0.01)
        assert all(thread.is_alive() for thread in threads)
        clock.start()
        free(brief, 2)
        for thread in threads:
            thread.join()


def test_who_holds_a_slot_and_who_waits_can_be_seen_by_administrators_alone(
    one_slot: None, admin: psycopg.Connection, connect: Connect
) -> None:
    holder, waiter, bob = connect(), connect("bob"), connect("bob")
    hold(holder)
    thread = threading.Thread(target=waiter.execute, args=("select llm_embed('Hi')",))
    thread.start()
    while not waiting(admin):
        time.sleep(0.01)
    assert admin.execute("select slot, pid from slot_status()").fetchall() == [
        (1, holder.info.backend_pid),
        (None, waiter.info.backend_pid),
    ]
    free(holder)
    thread.join()
    with fails("42501", hint=None):
        bob.execute("select * from slot_status()")


def test_many_waiters_cost_little_processor_time(one_slot: None, connect: Connect) -> None:
    holder, waiters = connect(), [connect("bob") for _ in range(32)]
    hold(holder)
    threads = [
        threading.Thread(target=waiter.execute, args=("select llm_embed('Hi')",)) for waiter in waiters
    ]
    for thread in threads:
        thread.start()
    while waiting(holder) < len(waiters):
        time.sleep(0.05)
    before = [processor_s(waiter.info.backend_pid) for waiter in waiters]
    time.sleep(3)
    spent = sum(processor_s(waiter.info.backend_pid) for waiter in waiters) - sum(before)
    free(holder)
    for thread in threads:
        thread.join()
    assert spent / 3 < 0.15


def processor_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("call", ["llm_generate_stream", "llm_chat_stream"])
def test_a_resting_cursor_holds_no_slot_and_its_memory_does_not_grow(
    one_slot: None, connect: Connect, call: str
) -> None:
    streaming, other, watching = connect("ana"), connect("bob"), connect()
    for connection in (streaming, other):
        connection.execute("select llm_chat('Hi', max_tokens => 1)")
    with streaming.transaction(), streaming.cursor(name="stream") as cursor:
        cursor.execute(
            f"select {call}('Write a very long story about the sea.', max_tokens => 1500)".encode()
        )
        for _ in range(20):
            assert cursor.fetchone()
        before = private_kb(streaming.info.backend_pid)
        for _ in range(5):
            assert taken(watching) == 0
            other.execute("select llm_generate('Hi', max_tokens => 1)")
        for _ in range(200):
            assert cursor.fetchone()
        assert private_kb(streaming.info.backend_pid) - before < 4096


def private_kb(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Anonymous:"))
