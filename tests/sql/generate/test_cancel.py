"""Whoever asks a backend to stop is heard, wherever the model is at work."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from random import Random
from typing import LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sql.confidence.test_calibration import label
from support import SCRIPTED_GENERATOR, Cluster, Connect
from support.clock import Clock, Deadline, within
from support.copies import register_copy
from support.slots import taken
from support.work import AT_WORK

STOPPED = AT_WORK | {"job": "select embedding_run()"}
EMBEDDING = {"embed", "embed rows", "insert", "job"}
BOTH = {"chat", "chat stream"}
AFTER_S = {"pg_cancel_backend": 0.5, "pg_terminate_backend": 0.3}
SHARING = [pytest.param(work, marks=pytest.mark.shares) for work in AT_WORK]


def warm_up(connection: psycopg.Connection, work: str) -> None:
    """Load the models that the work needs."""
    if work not in EMBEDDING:
        connection.execute("select llm_generate('Hi', max_tokens => 1)")
    if work in EMBEDDING | BOTH:
        connection.execute("select llm_embed('Hi')")


@pytest.mark.parametrize("work", [*SHARING, "job"])
@pytest.mark.parametrize(
    ("stop", "sqlstate"), [("pg_cancel_backend", "57014"), ("pg_terminate_backend", "57P01")]
)
def test_a_stop_is_heard_within_200_ms(connect: Connect, work: str, stop: str, sqlstate: str) -> None:
    for clock in within(0.2):
        busy, other = connect("ana"), connect()
        clock.of(busy.info.backend_pid)
        warm_up(busy, work)
        if work == "job":
            busy.execute("""select setting_set('embedding_mode', '"async"')""")
            busy.execute(AT_WORK["insert"].replace("4000", "1500").encode())

        def ask(other: psycopg.Connection, pid: int, clock: Clock) -> None:
            time.sleep(AFTER_S[stop])
            clock.start()
            other.execute(f"select {stop}(%s)", (pid,))

        asker = threading.Thread(target=ask, args=(other, busy.info.backend_pid, clock))
        asker.start()
        with pytest.raises(psycopg.Error) as caught:
            busy.execute(STOPPED[work])
        clock.stop()
        asker.join()
        assert caught.value.sqlstate == sqlstate


@pytest.mark.shares
@pytest.mark.parametrize("work", AT_WORK)
def test_statement_timeout_ends_a_call_and_the_connection_goes_on(ana: psycopg.Connection, work: str) -> None:
    warm_up(ana, work)
    ana.execute("set statement_timeout = '300ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        ana.execute(AT_WORK[work])
    ana.execute("set statement_timeout = 0")
    # What the cache holds of the broken call must not color the next answer.
    row = ana.execute("select llm_generate('What is the capital of France?')").fetchone()
    assert row is not None
    assert "Paris" in row[0]


@pytest.mark.shares
def test_a_cancelled_chat_stores_nothing(ana: psycopg.Connection) -> None:
    ana.execute("select llm_chat('Hi', max_tokens => 1)")
    before = ana.execute("select (select count(*) from memory), (select count(*) from session)").fetchone()
    ana.execute("set statement_timeout = '300ms'")
    with pytest.raises(psycopg.errors.QueryCanceled):
        ana.execute(AT_WORK["chat"])
    ana.execute("set statement_timeout = 0")
    assert (
        ana.execute("select (select count(*) from memory), (select count(*) from session)").fetchone()
        == before
    )


COUNTS = """select (select count(*) from memory), (select count(*) from session), (select count(*) from decision),
    (select count(*) from generation), (select count(*) from outcome), (select sum(access_count) from memory_access)"""
CHAT = """select llm_chat('Write a very long story about the old ship of Marta, Tomas, Erika and Jonas.',
    max_tokens => %s, memories => 1)"""


@pytest.fixture(scope="module")
def terse(
    cluster: Cluster, template: str, roles: Mapping[str, str]
) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
    """Ana, whose model answers briefly at first and at length in any other way, as it stops at its own first words.

    Beside her a superuser. Whoever takes them leaves behind what was there.
    """
    with (
        cluster.database(template) as name,
        cluster.connect(name, roles["ana"]) as ana,
        cluster.connect(name) as db,
    ):
        make_terse(ana, db)
        yield ana, db


def make_terse(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    for name in ("Marta", "Tomas", "Erika", "Jonas"):
        ana.execute("select memory_insert(%s)", (f"{name} sails the sea in an old ship.",))
    with ana.transaction(force_rollback=True):
        row = ana.execute(CHAT, (16,)).fetchone()
    assert row is not None
    register_copy(db, "second")
    db.execute(
        """update model set fallback = 'second', options = options || %s
           where kind = 'generator' and is_default""",
        (Jsonb({"stop": [" ".join(row[0].split()[-3:])]}),),
    )
    ana.execute(
        """insert into action_gain (action, model, temperature, answers, changed, gained, lost, p_value, helps)
           select 'retry', name, 0.5, 9, 9, 9, 0, 0, true from model where kind = 'generator' and is_default"""
    )
    ana.execute("select setting_set('chat_retrieve_below', '1')")


TRIED: dict[str, LiteralString] = {
    "retrieve": "ways = '{retrieve}'",
    "escalate": "ways = '{escalate}'",
    "retry": "ways = '{retry}'",
    "clarify": "alternatives @? '$[*].times'",
}
"""What decision holds once an answer was tried again in a way."""


@pytest.fixture(params=TRIED)
def action(
    terse: tuple[psycopg.Connection, psycopg.Connection], request: pytest.FixtureRequest
) -> Iterator[str]:
    """What a chat may try, in this test."""
    ana, _ = terse
    ana.execute("select setting_set('chat_' || %s, 'true')", (request.param,))
    yield request.param
    ana.execute("select setting_reset('chat_' || %s)", (request.param,))


def test_a_cancel_is_heard_while_an_answer_is_tried_again(
    terse: tuple[psycopg.Connection, psycopg.Connection], action: str
) -> None:
    ana, db = terse
    tried = "select count(*) from decision where " + TRIED[action]
    before = ana.execute(COUNTS).fetchone()
    for clock in within(0.2):
        clock.of(ana.info.backend_pid)
        asker = threading.Thread(target=cancel_second, args=(db, ana.info.backend_pid, clock))
        asker.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            ana.execute(CHAT, (1500,))
        clock.stop()
        asker.join()
        assert ana.execute(COUNTS).fetchone() == before
        assert taken(db) == 0
    # The connection goes on, and what was broken off can be done.
    with ana.transaction(force_rollback=True):
        ana.execute(CHAT, (24,))
        assert ana.execute("select count(*) from memory where kind = 'message'").fetchone() == (2,)
        assert ana.execute(tried).fetchone() == (1,)


def cancel_second(db: psycopg.Connection, pid: int, clock: Clock) -> None:
    """Cancel a chat once its first answer is recorded, which others see by the sequence alone, and a little later."""
    recorded, until = "select last_value from generation_id_seq", Deadline()
    first = db.execute(recorded).fetchone()
    while db.execute(recorded).fetchone() == first and not until.passed():
        time.sleep(0.01)
    time.sleep(0.3)
    clock.start()
    db.execute("select pg_cancel_backend(%s)", (pid,))


@pytest.mark.parametrize(("fresh", "limit_s", "longest_ms"), [(True, 0.2, 400), (False, 0.1, 900)])
def test_calibrate_hears_a_cancel_whatever_it_does(
    ana: psycopg.Connection, connect: Connect, fresh: bool, limit_s: float, longest_ms: int
) -> None:
    """The first call of a connection imports numpy, which takes more than 100 ms. Then it does what any call does."""
    calibrate = "select calibrate(%s, 0.2)"
    label(ana, 1500)
    if not fresh:
        ana.execute(calibrate, (SCRIPTED_GENERATOR,))
    random = Random(1)
    for wait_ms in (random.randint(20, longest_ms) for _ in range(10)):
        for clock in within(limit_s):
            busy = connect("ana") if fresh else ana
            clock.of(busy.info.backend_pid)
            busy.execute("select mindful_status()")
            busy.execute(f"set statement_timeout = {wait_ms}".encode())
            clock.start(after_s=wait_ms / 1000)
            with contextlib.suppress(psycopg.errors.QueryCanceled):
                busy.execute(calibrate, (SCRIPTED_GENERATOR,))
            clock.stop()
            busy.execute("set statement_timeout = 0")
            if fresh:
                busy.close()


@pytest.mark.shares
@pytest.mark.parametrize("function", ["llm_generate_stream", "llm_chat_stream"])
def test_a_cancel_while_a_cursor_fetches_a_piece_ends_the_stream(
    ana: psycopg.Connection, db: psycopg.Connection, function: str
) -> None:
    def ask() -> None:
        # One that comes between two pieces, while the backend waits for the client, has nothing to cancel.
        for _ in range(20):
            time.sleep(0.05)
            db.execute("select pg_cancel_backend(%s)", (ana.info.backend_pid,))

    pieces = 0
    asker = threading.Thread(target=ask)

    def read() -> None:
        nonlocal pieces
        with ana.transaction(), ana.cursor("story") as cursor:
            cursor.itersize = 1
            cursor.execute(f"select {function}('Write a very long story.', max_tokens => 1500)".encode())
            for pieces, _ in enumerate(cursor, start=1):
                if pieces == 1:
                    asker.start()

    with pytest.raises(psycopg.errors.QueryCanceled):
        read()
    asker.join()
    assert pieces < 500
