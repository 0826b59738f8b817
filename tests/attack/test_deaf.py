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
from support import Cluster
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
    "action_measure": {"action": "retrieve"},
    "adaptation_schedule": {},
    "adaptation_work": {},
    "adapter_activate": {"adapter": "x"},
    "adapter_rollback": {"base": "x"},
    "adapters_trained_on": {"memory_id": 1},
    "calibrate": {},
    "calibration_import": {"gold": "gold"},
    "confidence_adapt": {},
    "confidence_report": {},
    "consolidation_schedule": {},
    "consolidation_work": {},
    "document_forget": {"source": "hostile"},
    "document_insert": {"content": "Some text.", "source": "note"},
    "document_insert_parts": {"source": "note", "parts": [{"key": "a", "content": "Some text."}]},
    "document_list": {},
    "embedding_compare": {"query": "tea"},
    "embedding_sweep": {},
    "job_retry": {},
    "job_run": {},
    "job_schedule": {},
    "job_worker": {},
    "llm_chat": {"message": "Hi"},
    "llm_chat_detail": {"message": "Hi"},
    "llm_chat_stream": {"message": "Hi"},
    "llm_classify": {"content": "Hi", "labels": ["good", "bad"]},
    "llm_classify_many": {"contents": ["Hi"], "labels": ["good", "bad"]},
    "llm_embed": {"content": "Hi"},
    "llm_embed_many": {"contents": ["Hi"]},
    "llm_extract": {"content": "I am Ana", "json_schema": SCHEMA},
    "llm_extract_many": {"contents": ["I am Ana"], "json_schema": SCHEMA},
    "llm_generate": {"prompt": "Hi"},
    "llm_generate_detail": {"prompt": "Hi"},
    "llm_generate_many": {"prompts": ["Hi"]},
    "llm_if": {"content": "Hi", "condition": "It is a greeting."},
    "llm_if_many": {"contents": ["Hi"], "condition": "It is a greeting."},
    "llm_rerank": {"query": "tea", "contents": ["tea"]},
    "llm_stream": {"prompt": "Hi"},
    "llm_summarize": {"content": "Hi"},
    "llm_token_count": {"content": "Hi"},
    "memory_access_insert": {"ids": [1]},
    "memory_attach": {"relation": "public.note", "content": "body"},
    "memory_consolidate": {},
    "memory_detach": {"relation": "public.note"},
    "memory_evidence_insert": {"id": 1, "source_id": 2, "quote": "tea"},
    "memory_export": {},
    "memory_forget": {"everything": True},
    "memory_forget_check": {"ids": [1]},
    "memory_history": {"id": 1},
    "memory_import": {"lines": "public.lines"},
    "memory_insert": {"content": "tea"},
    "memory_insert_many": {"memories": [{"content": "tea"}]},
    "memory_link_delete": {"source_id": 1, "target_id": 2},
    "memory_link_insert": {"source_id": 1, "target_id": 2, "relation": "like"},
    "memory_neighbors": {"id": 1},
    "memory_prune": {},
    "memory_recall": {"query": "tea"},
    "memory_update": {"id": 1, "content": "tea"},
    "message_insert": {"session_id": SESSION, "role": "user", "content": "tea"},
    "message_insert_many": {"session_id": SESSION, "messages": [{"role": "user", "content": "tea"}]},
    "mindful_status": {},
    "model_default_set": {"name": "x"},
    "model_training_get": {"run": 1},
    "model_unload": {},
    "replay_export": {"run": 1},
    "replay_hash": {"run": 1},
    "replay_run": {"model": "default"},
    "retention_run": {},
    "retention_work": {},
    "review_label": {"message_id": 1, "correct": True},
    "self_review": {"message_id": 1},
    "session_context": {"session_id": SESSION, "query": "tea"},
    "session_start": {},
    "session_summarize": {"session_id": SESSION},
    "setting_get": {"key": "tools"},
    "setting_set": {"key": "tools", "value": "off"},
    "setting_undo": {"change_id": 1},
    "tenant_set": {"tenant": "x"},
    "tool_accept": {"name": "now"},
    "tool_register": {"name": "now", "function": "pg_catalog.upper(text)", "description": "Says the time."},
    "tool_unregister": {"name": "now"},
    "training_evaluate": {"run": 1},
    "training_fail": {"id": 1, "error": "It failed."},
    "training_finish": {"id": 1, "adapter": "x"},
    "training_start": {"run": 1, "dataset_sha256": "0"},
}
FUNCTIONS = """
    select p.proname as name, p.prokind as kind,
        array(select format_type(t, null) from unnest(p.proargtypes) t) as types, p.proargnames as names
    from pg_proc p
    where p.pronamespace = 'mindful'::regnamespace and p.proname !~ '^_'
        and has_function_privilege('mindful_user', p.oid, 'execute')
"""
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
            sql.Identifier(self.name), sql.SQL(", ").join(one for one, _ in passed)
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
        name: Function(name, kind, dict(zip(names or (), types, strict=False)))
        for name, kind, types, names in connection.execute(FUNCTIONS).fetchall()
    }


def seconds(connection: psycopg.Connection, statement: sql.Composed, values: list[Any]) -> tuple[float, str]:
    """Run a statement and undo it; return what it took, the best of three where that is too long, and its SQLSTATE."""
    best, state = float("inf"), ""
    for _ in range(3):
        try:
            with connection.transaction(force_rollback=True):
                connection.execute("savepoint begun")
                started = time.perf_counter()
                try:
                    connection.execute(statement, values)
                    state = "00000"
                finally:
                    best = min(best, time.perf_counter() - started)
        except psycopg.Error as error:
            state = error.sqlstate or "connection ended"
        if best < ENDED_S:
            break
    return best, state


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
            db.execute("create table lines (line jsonb)")
            db.execute("create table note (id int primary key, body text)")
            db.execute(sql.SQL("alter table note owner to {}").format(sql.Identifier(roles["ana"])))
            db.execute("grant select on lines to public")
            db.execute('insert into lines values (\'{"type": "export"}\')')
            for at, kind in enumerate(KINDS, 1):
                line = {
                    "type": "memory",
                    "id": at,
                    "kind": "fact",
                    "content": f"Tea. {texts(LARGEST - 5)[kind]}",
                }
                db.execute("insert into lines values (%s)", (json.dumps(line),))
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
        took, state = seconds(patient, statement, values)
        if state == CANCELLED and f"{name} {case}" not in LATE and case.endswith("huge"):
            took, state = seconds(patient, statement, values)  # the machine is shared
        attempt.errors.setdefault("ana", set()).add(state)
        if took >= ENDED_S:
            deaf.append(f"{case}: {took:.2f} s, {state}")
        elif case.endswith("huge") and state == CANCELLED and f"{name} {case}" not in LATE:
            deaf.append(f"{case}: no limit")
    assert deaf == []


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
    waits = []
    with cluster.connect() as db, cluster.connect(seeded, roles["ana"]) as ana:
        ana.execute("select llm_embed('Hi'), llm_generate('Hi', max_tokens => 1)")
        for _ in range(3):  # the machine is shared: the best of three is what the code takes
            other = cluster.create_database()
            busy = threading.Thread(target=undone, args=(ana, WORK[work]))
            busy.start()
            time.sleep(0.2)
            started = time.perf_counter()
            cluster.drop_database(other)
            waits.append(time.perf_counter() - started)
            db.execute("select pg_cancel_backend(%s)", (ana.info.backend_pid,))
            busy.join()
            if waits[-1] < 1:
                break
    assert min(waits) < 1


def undone(connection: psycopg.Connection, statement: LiteralString) -> None:
    """Run a statement until it is cancelled, and undo it."""
    with suppress(psycopg.errors.QueryCanceled), connection.transaction(force_rollback=True):
        connection.execute(statement, {"session": SESSION})


@pytest.mark.timeout(300)
def test_hostile_texts_are_read_once_and_hold_up_nobody(patient: psycopg.Connection, attempt: Any) -> None:
    """Stalls the nightly run by messages that take the square of their length to read."""
    attempt.roles.add("ana")
    with patient.transaction(force_rollback=True):
        patient.execute("set local statement_timeout = 0")
        started = time.perf_counter()
        patient.execute("select memory_consolidate()")
        took = time.perf_counter() - started
        row = patient.execute("select count(*) from _consolidation_pending(null)").fetchone()
    assert row == (0,)
    assert took < 60
