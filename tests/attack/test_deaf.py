"""Nothing that a role may call keeps a connection from hearing a cancel, whatever text it is given."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from support import GENERATOR, SCRIPTED_GENERATOR, Cluster
from support.clock import TRIES, LateError, within
from support.hostile import texts

TIMEOUT_MS = 500
CANCELLED = "57014"
ENDED_S = 0.7
LARGEST = 1 << 18
"""Bytes of a text that every function admits, or refuses at once."""
HUGE = "word " * 2_000_000
"""More than any argument admits but the content of a document."""
KINDS = ("base64", "spaces", "marks", "emails", "numbers", "nested", "facts", "phones", "lines", "quotes")
MANY = 3000
"""Elements of an array."""
MEMORIES = [
    {"type": "memory", "id": at, "content": f"Tea. {texts(LARGEST - 5)[kind]}"}
    for at, kind in enumerate(KINDS)
]
"""An export with a long text of every kind."""
SESSION = str(uuid.UUID(int=7))
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}
LATE = (
    "document_insert content: huge",
    "memory_consolidate model: huge",
    "memory_export kinds: huge",
    "memory_export source: huge",
    "memory_neighbors relations: huge",
)
"""Arguments that may be so large, or are compared with what is stored and nothing else."""
NO_ENTRY = "every function that mindful_user may execute needs arguments here"

# By function, values of the arguments without which it does nothing; the others keep their defaults.
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "action_evaluate": {"action": "retrieve"},
    "tuning_schedule": {},
    "tuning_run": {},
    "adapter_activate": {"adapter": "x"},
    "adapter_rollback": {"base": "x"},
    "adapters_trained_on": {"memory_id": 1},
    "calibrate": {},
    "gold_evaluate": {"gold": [{"question": "Why?", "answers": ["a"]}]},
    "confidence_tune": {},
    "confidence_report": {},
    "consolidation_schedule": {},
    "consolidation_run": {},
    "document_delete": {"source": "hostile"},
    "document_insert": {"content": "Some text.", "source": "note"},
    "document_insert_parts": {"source": "note", "parts": [{"key": "a", "content": "Some text."}]},
    "document_list": {},
    "embedding_compare": {"query": "tea"},
    "embedding_enqueue": {},
    "embedding_retry": {},
    "embedding_run": {},
    "worker_schedule": {},
    "worker_run": {},
    "llm_chat": {"message": "Hi"},
    "llm_chat_detail": {"message": "Hi"},
    "llm_chat_stream": {"message": "Hi"},
    "llm_classify": {"content": "Hi", "labels": ["good", "bad"]},
    "llm_classify_many": {"contents": ["Hi"], "labels": ["good", "bad"]},
    "classifier_delete": {"name": "x"},
    "classifier_list": {},
    "classifier_train": {"name": "x", "query": "select content, role from mindful.memory"},
    "llm_aggregate": {"content": "Hi", "instruction": "Greet."},
    "llm_classify_many on_error": {"contents": ["Hi"], "labels": ["good", "bad"], "on_error": "null"},
    "llm_embed_many on_error": {"contents": ["Hi"], "on_error": "null"},
    "llm_extract_many on_error": {"contents": ["I am Ana"], "json_schema": SCHEMA, "on_error": "null"},
    "llm_generate_many on_error": {"prompts": ["Hi"], "on_error": "null"},
    "llm_if_many on_error": {"contents": ["Hi"], "condition": "It is a greeting.", "on_error": "null"},
    "llm_rank": {"query": "tea", "contents": ["tea"]},
    "result_cache_clear": {},
    "llm_complete": {"messages": [{"role": "user", "content": "Hi"}]},
    "llm_complete_stream": {"messages": [{"role": "user", "content": "Hi"}]},
    "llm_embed": {"content": "Hi"},
    "llm_embed_many": {"contents": ["Hi"]},
    "llm_extract": {"content": "I am Ana", "json_schema": SCHEMA},
    "llm_extract_many": {"contents": ["I am Ana"], "json_schema": SCHEMA},
    "llm_generate": {"prompt": "Hi"},
    "llm_stream": {"prompt": "Hi"},
    "llm_generate_detail": {"prompt": "Hi"},
    "llm_generate_many": {"prompts": ["Hi"]},
    "llm_if": {"content": "Hi", "condition": "It is a greeting."},
    "llm_if_many": {"contents": ["Hi"], "condition": "It is a greeting."},
    "llm_rerank": {"query": "tea", "contents": ["tea"]},
    "llm_generate_stream": {"prompt": "Hi"},
    "llm_summarize": {"content": "Hi"},
    "llm_token_count": {"content": "Hi"},
    "memory_access_record": {"ids": [1]},
    "memory_attach": {"relation": "public.note", "content": "body"},
    "memory_consolidate": {},
    "memory_detach": {"relation": "public.note"},
    "memory_evidence_insert": {"id": 1, "source_id": 2, "quote": "tea"},
    "memory_export": {},
    "memory_forget": {"everything": True},
    "memory_forget_check": {"ids": [1]},
    "memory_get": {"id": 1},
    "memory_history": {"id": 1},
    "memory_import": {"lines": MEMORIES},
    "memory_index_rebuild": {},
    "memory_insert": {"content": "tea"},
    "memory_insert_many": {"memories": [{"content": "tea"}]},
    "memory_link_delete": {"source_id": 1, "target_id": 2},
    "memory_link_insert": {"source_id": 1, "target_id": 2, "relation": "like"},
    "memory_list": {},
    "memory_neighbors": {"id": 1},
    "memory_prune": {},
    "memory_recall": {"query": "tea"},
    "memory_update": {"id": 1, "content": "tea"},
    "message_insert": {"session_id": SESSION, "role": "user", "content": "tea"},
    "message_insert_many": {"session_id": SESSION, "messages": [{"role": "user", "content": "tea"}]},
    "mindful_status": {},
    "model_default_set": {"name": "x"},
    "_mindful.training_model": {"run": 1},
    "model_unload": {},
    "replay_export": {"run": 1},
    "replay_export_record": {"run": 1, "files": []},
    "replay_night": {},
    "_mindful.replay_hash": {"run": 1},
    "replay_run": {"model": "default"},
    "retention_run": {},
    "answer_label": {"message_id": 1, "correct": True},
    "self_review": {"message_id": 1},
    "key_create": {"name": "x"},
    "key_list": {},
    "key_revoke": {"id": SESSION},
    "session_continue": {"messages": [{"role": "user", "content": "tea"}]},
    "session_context": {"session_id": SESSION, "query": "tea"},
    "session_delete": {"session_id": SESSION},
    "session_get": {"session_id": SESSION},
    "session_list": {},
    "session_start": {},
    "session_summarize": {"session_id": SESSION},
    "setting_define": {"key": "app.text", "type": "text", "description": "A text."},
    "setting_get": {"key": "chat_tools"},
    "setting_reset": {"key": "chat_tools"},
    "setting_undefine": {"key": "app.text"},
    "setting_set": {"key": "chat_tools", "value": "off"},
    "setting_undo": {"change_id": 1},
    "tenant_set": {"tenant": "x"},
    "tool_accept": {"name": "now"},
    "tool_register": {"name": "now", "function": "pg_catalog.upper(text)", "description": "Says the time."},
    "tool_unregister": {"name": "now"},
    "training_evaluate": {"run": 1},
    "_mindful.training_fail": {"id": 1, "error": "It failed."},
    "_mindful.training_finish": {"id": 1, "adapter": "x"},
    "_mindful.training_start": {"run": 1, "dataset_sha256": "0"},
}
FUNCTIONS = """
    select p.pronamespace::regnamespace || '.' || p.proname as name, p.prokind as kind,
        array(select format_type(t, null) from unnest(p.proargtypes) t) as types, p.proargnames as names
    from pg_proc p
    where (p.pronamespace = 'mindful'::regnamespace
            or p.pronamespace = '_mindful'::regnamespace and p.proname = any (%s))
        and has_function_privilege('mindful_user', p.oid, 'execute')
"""
COMMAND_LINE = ["replay_hash", "training_model", "training_start", "training_finish", "training_fail"]
"""Functions of the schema _mindful that users call through the command line."""
TEXTS = ("text", "text[]", "jsonb")


class Raw(str):
    """JSON as it is sent."""

    __slots__ = ()


@dataclass(frozen=True)
class Function:
    """A function as the catalog has it."""

    name: str
    kind: str
    arguments: Mapping[str, str]

    def statement(self, given: Mapping[str, Any]) -> tuple[sql.Composed, list[Any]]:
        """Call it with these arguments."""
        passed = [self._passed(name, value) for name, value in given.items()]
        verb = "call {}({})" if self.kind == "p" else "select count(x) from {}({}) x"
        statement = sql.SQL(verb).format(
            sql.Identifier(*self.name.split(".")), sql.SQL(", ").join(one for one, _ in passed)
        )
        return statement, [value for _, value in passed]

    def _passed(self, name: str, value: Any) -> tuple[sql.Composed, Any]:
        kind = self.arguments[name]
        place = "%s"
        if kind == "jsonb" and not isinstance(value, Raw):
            value = json.dumps(value)
        if isinstance(value, list) and len(value) == 1:  # a client takes long to write an array of quotes
            place, value = "array[%s]", value[0]
        named = sql.Composed([]) if self.kind == "a" else sql.SQL("{} => ").format(sql.Identifier(name))
        return named + sql.SQL(f"{place}::{kind}"), value


def functions(connection: psycopg.Connection) -> dict[str, Function]:
    """The functions that a user may call, by name."""
    return {
        name.removeprefix("mindful.") + " on_error" * ("on_error" in (names or ())): Function(
            name, kind, dict(zip(names or (), types, strict=False))
        )
        for name, kind, types, names in connection.execute(FUNCTIONS, [COMMAND_LINE]).fetchall()
    }


def ends(connection: psycopg.Connection, statement: sql.Composed, values: list[Any]) -> tuple[str, str]:
    """Run a statement and undo it; return its SQLSTATE, and how late it ended if it did so each time."""
    state = ""
    try:
        for clock in within(ENDED_S):
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute("savepoint begun")
                    clock.start()
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
    hostile = texts(LARGEST)
    chosen = {name: hostile[name] for name in (KINDS if main else KINDS[:3])} | {"huge": HUGE}
    for name, text in chosen.items():
        if kind == "text":
            yield name, text
        elif kind == "text[]":
            yield name, [text]
        else:
            yield name, {"content": text}
    if kind == "text[]":
        yield "many", [texts(1 << 10)["facts"]] * MANY
    if kind == "jsonb":
        yield "deep", Raw("[" * 5000 + "]" * 5000)
        yield "members", {f"member {at}": {"type": "string"} for at in range(2000)}
        elements = [{"role": "user", "content": f"I love tea {at}", "key": str(at)} for at in range(MANY)]
        yield "many", elements
        yield "element", [{"role": "user", "key": "a", "content": hostile["base64"]}]
        yield "huge element", [{"role": "user", "key": "a", "content": HUGE}]


def calls(function: Function, given: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what a function is called with: as it is, and each argument that is a text as a hostile one."""
    yield "as it is", given
    named = [name for name, kind in function.arguments.items() if kind in TEXTS]
    for at, name in enumerate(named):
        for kind, value in values_of(function.arguments[name], at == 0):
            yield f"{name}: {kind}", {**given, name: value}


@pytest.fixture(scope="module")
def seeded(cluster: Cluster, template: str, roles: Mapping[str, str]) -> Iterator[str]:
    """Name of a database in which Ana has hostile texts of every kind."""
    with cluster.database(template) as name:
        with cluster.connect(name) as db:
            db.execute("create table note (id int primary key, body text)")
            db.execute(sql.SQL("alter table note owner to {}").format(sql.Identifier(roles["ana"])))
        with cluster.connect(name, roles["ana"]) as ana:
            ana.execute(
                """select setting_set('embedding_mode', '"async"'), setting_set('training_consent', 'true')"""
            )
            ana.execute("insert into session (session_id) values (%s)", (SESSION,))
            for role in ("user", "assistant"):
                for kind in KINDS:
                    ana.execute(
                        "select message_insert(%s, %s, %s)",
                        (SESSION, role, f"I love tea. {texts(LARGEST - 12)[kind]}"),
                    )
            ana.execute("select document_insert('Some text.', 'hostile')")
        yield name


@pytest.fixture(scope="module")
def patient(cluster: Cluster, seeded: str, roles: Mapping[str, str]) -> Iterator[psycopg.Connection]:
    """Ana, whose models are loaded, and whose statements end in time."""
    with cluster.connect(seeded, roles["ana"]) as connection:
        connection.execute("select llm_generate('Hi', max_tokens => 1), llm_embed('Hi')")
        connection.execute("select set_config('statement_timeout', %s, false)", (f"{TIMEOUT_MS}ms",))
        yield connection


def test_every_function_has_an_entry(ana: psycopg.Connection) -> None:
    """Calls a function that nobody has thought of."""
    assert set(functions(ana)) == set(ARGUMENTS), NO_ENTRY


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_function_hears_its_time_out_whatever_it_is_given(
    patient: psycopg.Connection, attempt: Any, name: str
) -> None:
    """Keeps a connection busy past its statement_timeout by a text made for that."""
    attempt.roles.add("ana")
    function = functions(patient)[name]
    deaf = []
    for case, given in calls(function, ARGUMENTS[name]):
        statement, values = function.statement(given)
        limited = case.endswith("huge") and f"{name} {case}" not in LATE
        for _ in range(TRIES):
            state, late = ends(patient, statement, values)
            if late or state != CANCELLED or not limited:
                break
        attempt.errors.setdefault("ana", set()).add(state)
        if late:
            deaf.append(f"{case}: {late}, {state}")
        elif limited and state == CANCELLED:
            deaf.append(f"{case}: no limit")
    assert deaf == []


PREPARED = 400
"""People whose preferences a run of replay turns into pairs."""
EVERYTHING = {"level": "data", "confidence": 0, "accesses": 0, "facts": 1000000}


@pytest.fixture(scope="module")
def trained(cluster: Cluster, seeded: str, roles: Mapping[str, str]) -> dict[str, int]:
    """Ids of a run of replay over hostile texts and many facts, and of a training of it."""
    with cluster.connect(seeded) as db:
        db.execute("select training_configure(%s, 'chat')", (GENERATOR,))
    with cluster.connect(seeded, roles["ana"]) as ana:
        people = [
            {"role": "user", "content": "I love olives.", "metadata": {"speaker": f"Ana{at}"}}
            for at in range(PREPARED)
        ]
        ana.execute("select message_insert_many(session_start(), %s)", (json.dumps(people),))
        ana.execute("select memory_consolidate()")
        ana.execute("select replay_run(%s, %s)", (GENERATOR, json.dumps(EVERYTHING)))
        (run,) = ana.execute("select max(id) from consolidation where type = 'replay'").fetchone() or (0,)
        assert ana.execute("select count(*) > 100 from training_sample").fetchone() == (True,)
        (training,) = ana.execute(
            "select _mindful.training_start(%s, _mindful.replay_hash(%s))", (run, run)
        ).fetchone() or (0,)
    return {"run": run, "training": training}


def gold_arrays() -> Iterator[tuple[str, str]]:
    """Yield arrays of questions and answers that are large in one way each."""
    hostile = texts(LARGEST)
    for kind in KINDS:
        yield f"question {kind}", json.dumps([{"question": hostile[kind], "answers": ["a"]}])
        yield f"answer {kind}", json.dumps([{"question": "Why?", "answers": [hostile[kind]]}])
        known = {"question": "Why?", "answers": ["a"], "memories": [hostile[kind]]}
        yield f"memory {kind}", json.dumps([known])
    yield "answers", json.dumps([{"question": "Why?", "answers": [f"a {at}" for at in range(20 * MANY)]}])
    yield "memories", json.dumps([{"question": "Why?", "answers": ["a"], "memories": ["tea"] * MANY}])
    yield "items", json.dumps([{"question": f"Why {at}?", "answers": ["a"]} for at in range(MANY)])


def prepared(trained: Mapping[str, int], messages: list[int]) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield calls that find what they work on, with the most that they admit."""
    run, training = trained["run"], trained["training"]
    for case, gold in gold_arrays():
        for model in (GENERATOR, SCRIPTED_GENERATOR):
            yield f"gold {case} {model}", "gold_evaluate(%s, %s)", [gold, model]
        yield f"gold {case} tier 3", "gold_evaluate(%s, %s, signal_tier => 3)", [gold, GENERATOR]
    for message in messages:
        for model in (GENERATOR, SCRIPTED_GENERATOR):
            yield f"review {message} {model}", "self_review(%s, %s)", [message, model]
    yield "replay", "replay_run(%s, %s)", [GENERATOR, json.dumps(EVERYTHING)]
    yield "export", "replay_export(%s)", [run]
    yield "hash", "_mindful.replay_hash(%s)", [run]
    yield "evaluate", "training_evaluate(%s)", [run]
    yield "finish", "_mindful.training_finish(%s, %s)", [training, GENERATOR]
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
    for case, call, values in prepared(trained, [message for (message,) in found]):
        statement = sql.SQL("select count(x) from {} x").format(sql.SQL(call))
        state, late = ends(patient, statement, values)
        states.add(state)
        if late:
            deaf.append(f"{case}: {late}, {state}")
    attempt.errors.setdefault("ana", set()).update(states)
    assert deaf == []
    assert {"00000", CANCELLED} <= states  # some end in time, and some are long


WORK: Mapping[str, LiteralString] = {
    "consolidate": "select memory_consolidate()",
    "export": "select count(*) from memory_export()",
    "document": "select document_insert((select string_agg(content, E'\\n') from memory where role = 'user'), 'a.md')",
    "summarize": "select session_summarize(%(session)s, 'extract')",
    "embed": "select llm_embed_many((select array_agg(content) from memory where role = 'user'))",
}


@pytest.mark.parametrize("work", WORK)
def test_other_databases_can_be_dropped_while_a_hostile_text_is_read(
    cluster: Cluster, seeded: str, roles: Mapping[str, str], attempt: Any, work: str
) -> None:
    """Stops all commands of the server that wait for every backend, by a text that takes long to read."""
    attempt.roles.add("ana")
    with cluster.connect() as db, cluster.connect(seeded, roles["ana"]) as ana:
        ana.execute("select llm_embed('Hi'), llm_generate('Hi', max_tokens => 1)")
        for clock in within(1):
            other = cluster.create_database()
            busy = threading.Thread(target=undone, args=(ana, WORK[work]))
            busy.start()
            time.sleep(0.2)
            clock.start()
            cluster.drop_database(other)
            clock.stop()
            db.execute("select pg_cancel_backend(%s)", (ana.info.backend_pid,))
            busy.join()


def undone(connection: psycopg.Connection, statement: LiteralString) -> None:
    """Run a statement until it is cancelled, and undo it."""
    with suppress(psycopg.errors.QueryCanceled), connection.transaction(force_rollback=True):
        connection.execute(statement, {"session": SESSION})


@pytest.mark.timeout(300)
def test_hostile_texts_are_read_once_and_hold_up_nobody(patient: psycopg.Connection, attempt: Any) -> None:
    """Stalls the nightly run by messages that take the square of their length to read."""
    attempt.roles.add("ana")
    for _ in within(60, tries=2):
        with patient.transaction(force_rollback=True):
            patient.execute("set local statement_timeout = 0")
            patient.execute("select memory_consolidate()")
            row = patient.execute("select count(*) from _mindful.consolidation_pending(null)").fetchone()
        assert row == (0,)
