"""Nothing that a role may call keeps a connection from hearing a cancel, whatever text it is given."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import cycle, islice
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from support import EMBEDDER, SCRIPTED_GENERATOR, Cluster
from support.calls import ARGUMENTS, INTERNAL, KINDS, LARGEST, SESSION, Function, Raw, functions, internals
from support.clock import LateError, within
from support.files import readable_folder
from support.hostile import texts
from support.query import one
from support.weights import write_truncated

TIMEOUTS_MS = (100, 150, 250, 500)
"""Taken in turn: a stretch in which nothing is heard may come early or late."""
REFUSED_MS = 500
PATIENT_MS = 20_000
HEARD_MS = 200
CANCELLED = "57014"
HUGE = "word " * 2_000_000
"""More than any argument admits but the content of a document."""
MANY = 3000
"""Elements of an array."""
NUMEROUS = 80_000
"""Short elements of an array: as JSON nearly as long as is admitted, so that they are read."""
LATE = (
    "document_insert content: huge",
    "memory_consolidate model: huge",
    "memory_export kinds: huge",
    "memory_export source: huge",
    "memory_neighbors relations: huge",
)
"""Arguments that may be so large, or are compared with what is stored and nothing else."""
BROKEN = ("XX", "08", "38", "co")
"""Classes of errors that no argument may cause; a stream has no other for its own."""
RAW = ("23502", "23514")
"""Errors of a table's own checks, which show the row and have no hint."""
NO_FUNCTION = "42883"
GENERATING = re.compile(r"(_mindful\.)?llm_|action_evaluate|calibrate|confidence_tune|gold_evaluate")
"""Functions whose argument max_tokens is of their answers."""
FEW_TOKENS = 4
GUIDING = ("json_schema", "grammar", "max_tokens")
"""Arguments that are read at every token."""
NO_ENTRY = "every function that mindful_user may execute needs arguments here"

BRIEF = "brief"
TEXTS = ("text", "text[]", "jsonb")


def ends(
    connection: psycopg.Connection,
    statement: sql.Composed,
    values: list[Any],
    timeout_ms: int,
    ended_ms: int | None = None,
) -> tuple[str, str]:
    """Run a statement and undo it; return its SQLSTATE, and how late it ended if it did so each time."""
    state = ""
    try:
        for clock in within((ended_ms or timeout_ms + HEARD_MS) / 1000):
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute(
                        "select set_config('statement_timeout', %s, true)", (f"{timeout_ms}ms",)
                    )
                    clock.start()
                    clock.of(connection.info.backend_pid)
                    try:
                        connection.execute(statement, values)
                        state = "00000"
                    finally:
                        clock.stop()
            except psycopg.Error as error:
                state = error.sqlstate or "connection ended"
    except LateError as late:
        return state, str(late)
    return state, ""


def values_of(kind: str, main: bool) -> Iterator[tuple[str, Any]]:
    """Yield hostile values of an argument's type; many where it is the text that the function is about."""
    chosen = {name: texts(LARGEST)[name] for name in (KINDS if main else KINDS[:3])} | {"huge": HUGE}
    for name, text in chosen.items():
        if kind == "text":
            yield name, text
        elif kind == "text[]":
            yield name, [text]
        else:
            yield name, {"content": text}
    if kind == "text[]":
        yield "many", [texts(1 << 10)["facts"]] * MANY
        yield "numerous", Raw(f"{{{'tea,' * NUMEROUS}tea}}")
    if kind == "jsonb":
        yield "deep", Raw("[" * 5000 + "]" * 5000)
        small = '{"role": "user", "key": "a", "content": "tea"}'
        yield "numerous", Raw(f"[{f'{small}, ' * NUMEROUS}{small}]")
        yield "members", {f"member {at}": {"type": "string"} for at in range(2000)}
        elements = [{"role": "user", "content": f"I love tea {at}", "key": str(at)} for at in range(MANY)]
        yield "many", elements
        yield "element", [{"role": "user", "key": "a", "content": texts(LARGEST)["base64"]}]
        yield "huge element", [{"role": "user", "key": "a", "content": HUGE}]


def calls(function: Function, given: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what a function is called with: as it is, and each argument that is a text as a hostile one."""
    yield "as it is", given
    # What is read before the answer is the same with a short one, and a long answer ends by the time-out alone.
    brief = (
        {"max_tokens": FEW_TOKENS}
        if "max_tokens" in function.arguments and GENERATING.match(function.name.removeprefix("mindful."))
        else {}
    )
    named = [name for name, kind in function.arguments.items() if kind in TEXTS]
    for at, name in enumerate(named):
        for kind, value in values_of(function.arguments[name], at == 0):
            yield f"{name}: {kind}", {**given, **({} if name in GUIDING else brief), name: value}


@pytest.fixture(scope="module")
def small(cluster: Cluster, brief_template: str) -> Iterator[str]:
    """Name of a template database whose models read as the default ones do, and compute little."""
    with readable_folder() as folder, cluster.database(brief_template) as name:
        with cluster.connect(name) as db:
            base = one(db, "select source from model where name = %s", EMBEDDER)
            db.execute(
                "select model_register('small', 'embedder', 'llama_cpp', %s, %s)",
                (write_truncated(folder / "small.gguf", base), json.dumps({"context_length": 256})),
            )
            db.execute("select model_default_set('small', force => true)")
        yield name


@pytest.fixture(scope="module")
def seeded(cluster: Cluster, small: str, roles: Mapping[str, str]) -> Iterator[str]:
    """Name of a database in which Ana has hostile texts of every kind."""
    with cluster.database(small) as name:
        with cluster.connect(name) as db:
            db.execute("create table note (id int primary key, body text)")
            db.execute(sql.SQL("alter table note owner to {}").format(sql.Identifier(roles["ana"])))
        with cluster.connect(name, roles["ana"]) as ana:
            ana.execute(
                """select setting_set('embedding_mode', '"async"'), setting_set('training_consent', 'true')"""
            )
            ana.execute("insert into session (session_id) values (%s)", (SESSION,))
            made = texts(LARGEST - 12)
            for role in ("user", "assistant"):
                for kind in KINDS:
                    ana.execute(
                        "select message_insert(%s, %s, %s)", (SESSION, role, f"I love tea. {made[kind]}")
                    )
            ana.execute("select document_insert('Some text.', 'hostile')")
        yield name


@pytest.fixture(scope="module")
def patient(cluster: Cluster, seeded: str, roles: Mapping[str, str]) -> Iterator[psycopg.Connection]:
    """Ana, whose models are loaded."""
    with cluster.connect(seeded, roles["ana"]) as connection:
        connection.execute("select llm_generate('Hi', max_tokens => 1), llm_embed('Hi')")
        yield connection


def test_every_function_has_an_entry(ana: psycopg.Connection) -> None:
    """Calls a function that no attack covers."""
    assert set(functions(ana)) == set(ARGUMENTS), NO_ENTRY
    assert set(internals(ana)) == set(INTERNAL), NO_ENTRY


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*ARGUMENTS, *INTERNAL])
def test_a_function_hears_its_time_out_whatever_it_is_given(
    patient: psycopg.Connection, attempt: Any, name: str
) -> None:
    """Keeps a connection busy past its statement_timeout by a text made for that."""
    attempt.roles.add("ana")
    known = {**functions(patient), **internals(patient)}
    tested = {**ARGUMENTS, **INTERNAL}
    states, deaf = tried(patient, name, known[name], tested[name], turns(list(tested).index(name)))
    attempt.errors.setdefault("ana", set()).update(states)
    assert deaf == []


def turns(first: int) -> Iterator[int]:
    """The time-outs in turn, for ever: functions that read a text in the same way begin with different ones."""
    return islice(cycle(TIMEOUTS_MS), first % len(TIMEOUTS_MS), None)


def tried(
    patient: psycopg.Connection,
    name: str,
    function: Function,
    given: Mapping[str, Any],
    timeouts: Iterator[int],
) -> tuple[set[str], list[str]]:
    """Call a function with hostile values of each argument; return the SQLSTATEs, and what went wrong."""
    states, deaf = set(), []
    for (case, chosen), timeout_ms in zip(calls(function, given), timeouts, strict=False):
        statement, values = function.statement(chosen)
        # What only the extension is to call may have its limits in its callers.
        if name in ARGUMENTS and case.endswith("huge") and f"{name} {case}" not in LATE:
            # Refused before a time-out; not cancelled, as the clock alone leaves out what other processes take.
            state, late = ends(patient, statement, values, PATIENT_MS, REFUSED_MS)
            late = late or "no limit" * (state == CANCELLED)
        else:
            state, late = ends(patient, statement, values, timeout_ms)
        states.add(state)
        if late:
            deaf.append(f"{case}: {late}, {state}")
        elif state in (NO_FUNCTION, *RAW) or (state[:2] in BROKEN and "stream" not in name):
            deaf.append(f"{case}: {state}")
    return states, deaf


WORK: Mapping[str, LiteralString] = {
    "consolidate": "select memory_consolidate()",
    "export": "select count(*) from generate_series(1, 1000) n, memory_export(source => nullif(n, n)::text)",
    "document": "select document_insert((select string_agg(content, E'\\n') from memory where role = 'user'), 'a.md')",
    "summarize": "select session_summarize(%(session)s, 'extract') from generate_series(1, 1000)",
    "embed": "select llm_embed_many((select array_agg(content) from memory where role = 'user'))",
}


@pytest.mark.parametrize("work", WORK)
def test_other_databases_can_be_dropped_while_a_hostile_text_is_read(
    cluster: Cluster, patient: psycopg.Connection, attempt: Any, work: str
) -> None:
    """Stops all commands of the server that wait for every backend, by a text that takes long to read."""
    attempt.roles.add("ana")
    with cluster.connect() as db:
        for clock in within(1):
            other = cluster.create_database()
            busy = threading.Thread(target=undone, args=(patient, WORK[work]))
            busy.start()
            time.sleep(0.2)
            clock.start()
            cluster.drop_database(other)
            clock.stop()
            assert busy.is_alive(), "it ended before the database was dropped"
            db.execute("select pg_cancel_backend(%s)", (patient.info.backend_pid,))
            busy.join()


def undone(connection: psycopg.Connection, statement: LiteralString) -> None:
    """Run a statement until it is cancelled, and undo it."""
    with suppress(psycopg.errors.QueryCanceled), connection.transaction(force_rollback=True):
        connection.execute(statement, {"session": SESSION})


@pytest.fixture(scope="module")
def consolidated(patient: psycopg.Connection) -> int:
    """How many messages are left to be read after a nightly run over the hostile texts, which has to end in time."""
    for _ in within(60, tries=1):
        patient.execute("select memory_consolidate()")
    left: int = one(patient, "select count(*) from _mindful.consolidation_pending(null)")
    return left


@pytest.mark.timeout(300)
def test_hostile_texts_are_read_once_and_hold_up_nobody(consolidated: int, attempt: Any) -> None:
    """Stalls the nightly run by messages that take the square of their length to read."""
    attempt.roles.add("ana")
    assert consolidated == 0


PREPARED = 150
"""People whose preferences a run of replay turns into pairs."""
EVERYTHING = {"level": "data", "confidence": 0, "accesses": 0, "facts": 1000000}


@pytest.fixture(scope="module")
def trained(cluster: Cluster, seeded: str, consolidated: int, roles: Mapping[str, str]) -> dict[str, int]:
    """Ids of a run of replay over hostile texts and many facts, and of a training of it."""
    with cluster.connect(seeded) as db:
        db.execute("select training_configure(%s, 'chat')", (BRIEF,))
    with cluster.connect(seeded, roles["ana"]) as ana:
        people = [
            {"role": "user", "content": "I love olives.", "metadata": {"speaker": f"Ana{at}"}}
            for at in range(PREPARED)
        ]
        ana.execute("select message_insert_many(session_start(), %s)", (json.dumps(people),))
        ana.execute("select memory_consolidate()")
        ana.execute("select replay_run(%s, %s)", (BRIEF, json.dumps(EVERYTHING)))
        (run,) = ana.execute("select max(id) from consolidation where type = 'replay'").fetchone() or (0,)
        assert ana.execute("select count(*) > 100 from training_sample").fetchone() == (True,)
        (training,) = ana.execute(
            "select _mindful.training_start(%s, _mindful.replay_hash(%s))", (run, run)
        ).fetchone() or (0,)
    return {"run": run, "training": training}


def gold_arrays() -> Iterator[tuple[str, str]]:
    """Yield arrays of questions and answers that are large in one way each."""
    for kind in KINDS:
        yield f"question {kind}", json.dumps([{"question": texts(LARGEST)[kind], "answers": ["a"]}])
        yield f"answer {kind}", json.dumps([{"question": "Why?", "answers": [texts(LARGEST)[kind]]}])
        known = {"question": "Why?", "answers": ["a"], "memories": [texts(LARGEST)[kind]]}
        yield f"memory {kind}", json.dumps([known])
    yield "answers", json.dumps([{"question": "Why?", "answers": [f"a {at}" for at in range(20 * MANY)]}])
    yield "memories", json.dumps([{"question": "Why?", "answers": ["a"], "memories": ["tea"] * MANY}])
    yield "items", json.dumps([{"question": f"Why {at}?", "answers": ["a"]} for at in range(MANY)])
    # The most that is admitted, and more.
    yield "many items", json.dumps([{"question": "Why?", "answers": ["a"]}] * 100_000)
    yield "more items", json.dumps([{"question": "Why?", "answers": ["a"]}] * 200_000)


def prepared(trained: Mapping[str, int], messages: list[int]) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield calls that find what they work on, with the most that they admit."""
    run, training = trained["run"], trained["training"]
    for case, gold in gold_arrays():
        for model in (BRIEF, SCRIPTED_GENERATOR):
            yield f"gold {case} {model}", "gold_evaluate(%s, %s, max_tokens => %s)", [gold, model, FEW_TOKENS]
        tier = "gold_evaluate(%s, %s, max_tokens => %s, signal_tier => 3)"
        yield f"gold {case} tier 3", tier, [gold, BRIEF, FEW_TOKENS]
    for message in messages:
        for model in (BRIEF, SCRIPTED_GENERATOR):
            yield f"review {message} {model}", "self_review(%s, %s)", [message, model]
    yield "replay", "replay_run(%s, %s)", [BRIEF, json.dumps(EVERYTHING)]
    yield "export", "replay_export(%s)", [run]
    yield "hash", "_mindful.replay_hash(%s)", [run]
    yield "evaluate", "training_evaluate(%s)", [run]
    yield "finish", "_mindful.training_finish(%s, %s)", [training, BRIEF]
    for kind in KINDS:
        text = texts(LARGEST)[kind]
        yield f"fail {kind}", "_mindful.training_fail(%s, %s)", [training, text]
        start = "_mindful.training_start(%s, _mindful.replay_hash(%s), %s)"
        yield f"start {kind}", start, [run, run, json.dumps({"text": text})]


@pytest.mark.timeout(600)
def test_what_was_prepared_is_worked_on_within_the_time_out(
    trained: Mapping[str, int], patient: psycopg.Connection, attempt: Any
) -> None:
    """Keeps a connection busy by gold questions, answers to review or a run of replay made for that."""
    attempt.roles.add("ana")
    found = patient.execute("select id from memory where role = 'assistant' order by id").fetchall()
    deaf, states = [], set()
    tried_calls = prepared(trained, [message for (message,) in found])
    for (case, call, values), timeout_ms in zip(tried_calls, turns(0), strict=False):
        statement = sql.SQL("select count(x) from {} x").format(sql.SQL(call))
        state, late = ends(patient, statement, values, timeout_ms)
        states.add(state)
        if late or state[:2] in BROKEN:
            deaf.append(f"{case}: {late}, {state}")
    attempt.errors.setdefault("ana", set()).update(states)
    assert deaf == []
    assert {"00000", CANCELLED} <= states  # some end in time, and some are long
