"""Models behind a server, as SQL sees them; each way that a server can fail is in tests/unit/models/test_openai.py."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import fails
from support.clock import Clock, Deadline, within
from support.cluster import Connect
from support.dying import MOMENTS, dying
from support.misbehaving import DIMS, WORDS, Server, misbehaving

ANSWER = "".join(WORDS)
KEY = "sk-secret-of-the-owner"


@pytest.fixture
def server() -> Iterator[Server]:
    with misbehaving() as running:
        yield running


def register(
    admin: psycopg.Connection, server: Server, mode: str, kind: str = "generator", **options: object
) -> str:
    """Register a model that is well at first, and fails in a way from then on."""
    name = f"{mode}-{kind}"
    given = {"silence_s": 30, **options}
    admin.execute(
        "select model_register(%s, %s, 'openai', %s, %s)", (name, kind, server.source("ok"), Jsonb(given))
    )
    admin.execute("update model set source = %s where name = %s", (server.source(mode), name))
    return name


@pytest.fixture
def keyed(db: psycopg.Connection, server: Server) -> Iterator[None]:
    """The owner's file of servers has a key for this one."""
    origin = server.source("").partition("//")[2].partition("/")[0]
    db.execute(
        f"""copy (select 'http://{origin} {KEY}') to program 'umask 077 && cat > mindful.servers'""".encode()
    )
    yield
    db.execute("copy (select 1) to program 'rm mindful.servers; cat > /dev/null'")


def test_a_served_generator_answers_as_an_embedded_one_does(
    admin: psycopg.Connection, ana: psycopg.Connection, server: Server
) -> None:
    name = register(admin, server, "ok")
    row = ana.execute(
        "select text, model, finish_reason, completion_tokens from llm_generate_detail('Hi', %s)", (name,)
    )
    assert row.fetchone() == (ANSWER, name, "stop", len(WORDS))
    assert [piece for (piece,) in ana.execute("select llm_generate_stream('Hi', %s)", (name,))] == WORDS
    whole = ana.execute(
        "select text, finish_reason, completion_tokens, prompt_tokens from llm_generate_detail('Hi', %s, 64)",
        (name,),
    )
    assert whole.fetchone() == (ANSWER, "stop", len(WORDS), 7)
    many = ana.execute("select llm_generate_many(array['a', null, 'b'], %s)", (name,)).fetchone()
    assert many == ([ANSWER, None, ANSWER],)
    assert ana.execute("select reply from llm_chat_detail('Hi', model => %s)", (name,)).fetchone() == (
        ANSWER,
    )
    logged = ana.execute("select count(*), min(cardinality(token_logprobs)) from generation").fetchone()
    assert logged == (6, len(WORDS))


def test_the_usage_of_a_model_tells_where_it_ran(
    admin: psycopg.Connection, ana: psycopg.Connection, server: Server
) -> None:
    name = register(admin, server, "ok")
    secret = server.source("ok").replace("//", "//user:sk-secret@")
    ana.execute("select llm_generate('Hi', %s), llm_generate('Hi', 'scripted')", (name,))
    admin.execute("update model set source = %s where name = %s", (secret, name))
    rows = ana.execute("select model, provider, address from model_usage order by model").fetchall()
    assert rows == [(name, "openai", server.source("ok")), ("scripted", "scripted", None)]


def test_a_served_embedder_fills_a_table_of_its_own(
    admin: psycopg.Connection, ana: psycopg.Connection, server: Server
) -> None:
    name = register(admin, server, "ok", "embedder")
    assert ana.execute("select dims from model where name = %s", (name,)).fetchone() == (DIMS,)
    admin.execute("select model_default_set(%s, force => true)", (name,))
    ana.execute("select memory_insert(x) from unnest(array['Marta lives in Oslo.', 'It rains.']) x")
    found = ana.execute("select content from memory_recall('Marta lives in Oslo.', k => 1)").fetchone()
    assert found == ("Marta lives in Oslo.",)


def test_only_administrators_register_a_server(ana: psycopg.Connection, server: Server) -> None:
    with fails("42501", hint=None):
        ana.execute("select model_register('m', 'generator', 'openai', %s)", (server.source("ok"),))
    assert not server.requests


@pytest.mark.parametrize(
    "source", ["http://10.0.0.1/v1", "http://169.254.169.254/v1", "https://8.8.8.8/v1", "http://[::]/v1"]
)
def test_an_administrator_reaches_no_other_machine_unless_the_owner_allows_it(
    admin: psycopg.Connection, ana: psycopg.Connection, server: Server, source: str
) -> None:
    with fails("42501", hint="mindful.servers"):
        admin.execute("select model_register('m', 'generator', 'openai', %s)", (source,))
    name = register(admin, server, "ok")
    admin.execute("update model set source = %s where name = %s", (source, name))
    with fails("42501", hint="mindful.servers"):
        ana.execute("select llm_generate('Hi', %s)", (name,))


@pytest.mark.parametrize(
    ("mode", "sqlstate"),
    [
        ("half", "08006"),
        ("500", "08006"),
        ("redirect", "08P01"),
        ("list", "08P01"),
        ("401", "42501"),
        ("plain", "08P01"),
    ],
)
def test_an_error_has_the_sqlstate_of_its_cause(
    admin: psycopg.Connection, ana: psycopg.Connection, server: Server, mode: str, sqlstate: str
) -> None:
    name = register(admin, server, mode)
    sql = "select llm_generate('Hi', %s)" if mode != "list" else "select llm_if('Hi', 'It is', %s)"
    with fails(sqlstate, hint=""):
        ana.execute(sql, (name,))
    assert server.redirected == 0


def test_a_key_is_sent_and_shown_nowhere(
    admin: psycopg.Connection, ana: psycopg.Connection, db: psycopg.Connection, server: Server, keyed: None
) -> None:
    good, refused = register(admin, server, "ok"), register(admin, server, "401")
    ana.execute("select llm_generate('Hi', %s)", (good,))
    assert set(server.keys) == {f"Bearer {KEY}"}
    with pytest.raises(psycopg.Error) as caught:
        ana.execute("select llm_generate('Hi', %s)", (refused,))
    assert KEY not in str(caught.value.diag.message_primary) + str(caught.value.diag.context)
    for who in (ana, admin):
        for what in ("mindful_status()", "model", *(["generation"] if who is ana else [])):
            assert KEY not in str(who.execute(f"select r::text from {what} r".encode()).fetchall())
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        admin.execute("select pg_read_file('mindful.servers')")


@pytest.mark.parametrize(
    ("mode", "sqlstate"),
    [
        ("half", "08006"),
        ("500", "08006"),
        ("json", "08P01"),
        ("huge", "08P01"),
        ("hang", "08006"),
        ("plain", "08P01"),
    ],
)
def test_a_whole_answer_that_is_broken_is_an_error_too(
    admin: psycopg.Connection, ana: psycopg.Connection, server: Server, mode: str, sqlstate: str
) -> None:
    name = register(admin, server, mode, timeout_s=1 if mode == "hang" else 60)
    with fails(sqlstate, hint=""):
        ana.execute("select llm_generate('Hi', %s, 64)", (name,))


@pytest.mark.parametrize("max_tokens", [64, 256])
@pytest.mark.parametrize("mode", ["hang", "silent", "slow", "drip"])
def test_a_cancel_ends_a_call_and_the_servers_work(
    admin: psycopg.Connection,
    ana: psycopg.Connection,
    db: psycopg.Connection,
    server: Server,
    mode: str,
    max_tokens: int,
) -> None:
    name = register(admin, server, mode, timeout_s=60)
    ana.execute("select llm_generate('Hi', 'scripted')")
    for clock in within(0.2):
        clock.of(ana.info.backend_pid)
        asked = partial(server.requests.__getitem__, mode)
        asker = threading.Thread(target=cancel, args=(db, ana.info.backend_pid, clock, asked, asked()))
        asker.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            ana.execute("select llm_generate('Hi', %s, %s)", (name, max_tokens))
        clock.stop()
        asker.join()
    assert server.closed.wait(60)
    assert ana.execute("select llm_generate('Hi', 'scripted')").fetchone() == ("I do not know.",)


def cancel(db: psycopg.Connection, pid: int, clock: Clock, asked: Callable[[], int], before: int) -> None:
    """Cancel a call soon after the server was asked."""
    until = Deadline()
    while asked() == before and not until.passed():
        time.sleep(0.01)
    time.sleep(0.1)
    clock.start()
    db.execute("select pg_cancel_backend(%s)", (pid,))


def test_who_waits_for_a_server_holds_no_slot_and_passes_barriers(
    admin: psycopg.Connection,
    ana: psycopg.Connection,
    db: psycopg.Connection,
    connect: Connect,
    server: Server,
) -> None:
    name = register(admin, server, "hang")
    admin.execute("select setting_set('model_slots', '1', 'global')")

    def ask() -> None:
        with pytest.raises(psycopg.errors.QueryCanceled):
            ana.execute("select llm_generate('Hi', %s)", (name,))

    asker = threading.Thread(target=ask)
    asker.start()
    until = Deadline()
    while not server.requests["hang"] and not until.passed():
        time.sleep(0.01)
    assert db.execute("select count(*) from slot_status()").fetchone() == (0,)
    db.execute("set statement_timeout = '5s'")
    db.execute("create database barrier_of_served")  # waits until every backend has taken part in a barrier
    db.execute("drop database barrier_of_served with (force)")
    db.execute("select pg_cancel_backend(%s)", (ana.info.backend_pid,))
    asker.join()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.shares
def test_whenever_the_server_ends_a_chat_goes_on_in_the_connection(
    admin: psycopg.Connection, ana: psycopg.Connection, db: psycopg.Connection, moment: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:  # the path of a socket must be short
        path = Path(folder) / "s"
        with dying(path, moment):
            Path(folder).chmod(0o755)
            if path.exists():
                path.chmod(0o777)
            served = {"address": f"unix:{path}", "when_down": "embedded"}
            options = {"model": "m", "server": "llama.cpp", "context_length": 512}
            admin.execute(
                "update model set options = options || %s where name = 'scripted'",
                (Jsonb({"served": {**served, "options": options}}),),
            )
            answer = ana.execute("select llm_generate('Hi', 'scripted')").fetchone()
            assert answer == ("I do not know.",)
            assert ana.execute("select llm_chat('Hi', model => 'scripted')").fetchone() == answer
            assert ana.execute("select llm_generate_many('{a,b}', 'scripted')").fetchone() == (
                [answer[0]] * 2,
            )
            assert db.execute("select count(*) from slot_status()").fetchone() == (0,)
            admin.execute(
                "update model set options = jsonb_set(options, '{served,when_down}', '\"error\"')"
                " where name = 'scripted'"
            )
            with fails("08006", hint=""):
                ana.execute("select llm_generate('Hi', 'scripted')")


OPTIONS = {"model": "m", "server": "llama.cpp", "context_length": 512}
ADDRESS = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    "served",
    [
        "yes",
        {"address": ADDRESS},
        {"address": ADDRESS, "when_down": "ask", "options": OPTIONS},
        {"address": 7, "when_down": "error", "options": OPTIONS},
        {"address": "ftp://127.0.0.1", "when_down": "error", "options": OPTIONS},
        {"address": ADDRESS, "when_down": "error", "options": {}},
        {"address": ADDRESS, "when_down": "error", "options": OPTIONS | {"context_length": "1"}},
        {"address": ADDRESS, "when_down": "error", "options": OPTIONS | {"server": "none"}},
        {"address": ADDRESS, "when_down": "error", "options": OPTIONS | {"more": 1}},
    ],
)
@pytest.mark.shares
def test_a_served_option_that_was_written_into_the_registry_is_checked(
    admin: psycopg.Connection, ana: psycopg.Connection, served: object
) -> None:
    admin.execute(
        "update model set options = options || %s where name = 'scripted'", (Jsonb({"served": served}),)
    )
    with fails("22023"):
        ana.execute("select llm_generate('Hi', 'scripted')")


@pytest.mark.shares
def test_a_served_option_leads_to_no_other_machine(
    admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    served = {"address": "http://169.254.169.254/v1", "when_down": "error", "options": OPTIONS}
    admin.execute(
        "update model set options = options || %s where name = 'scripted'", (Jsonb({"served": served}),)
    )
    with fails("42501", hint="mindful.servers"):
        ana.execute("select llm_generate('Hi', 'scripted')")
