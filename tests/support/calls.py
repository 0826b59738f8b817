"""The functions that a user may call, as the catalog has them, and arguments with which each of them does something."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from support.hostile import texts

LARGEST = 1 << 18
"""Bytes of a text that every function admits, or refuses at once."""
KINDS = ("base64", "spaces", "marks", "emails", "numbers", "nested", "facts", "phones", "lines", "quotes")
MEMORIES = [
    {"type": "memory", "id": at, "content": f"Tea. {texts(LARGEST - 5)[kind]}"}
    for at, kind in enumerate(KINDS)
]
"""An export with a long text of every kind."""
SESSION = str(uuid.UUID(int=7))
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}
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
    "_mindful.replay_export_record": {"run": 1, "files": []},
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
    "_mindful.training_running": {"id": 1},
    "_mindful.training_finish": {"id": 1, "adapter": "x"},
    "_mindful.training_start": {"run": 1, "dataset_sha256": "0"},
}
_EACH = {"contents": ["Hi"], "on_error": "null", "instruction": None, "model": None}
# The same of functions in Python that only the extension is to call. They have no defaults.
INTERNAL: Mapping[str, Mapping[str, Any]] = {
    "_mindful.aggregate_text": {"state": ["Greet.", "Hi"]},
    "_mindful.consolidate": {
        "run": 1,
        "since": None,
        "extractor": "rules",
        "model": None,
        "memories": 10,
        "seconds": 1,
    },
    "_mindful.job_run_own": {"max_jobs": 10, "max_seconds": 1},
    "_mindful.llm_classify_each": _EACH
    | {
        "labels": ["good", "bad"],
        "subtract_prior": False,
        "descriptions": {"good": "It pleases."},
        "examples": [{"content": "Hi", "label": "good"}],
        "classifier": None,
    },
    "_mindful.llm_embed_each": {"contents": ["Hi"], "on_error": "null", "model": None},
    "_mindful.llm_extract_each": _EACH | {"json_schema": SCHEMA, "max_tokens": 9},
    "_mindful.llm_generate_each": dict.fromkeys(
        (
            "model",
            "system_prompt",
            "stop",
            "json_schema",
            "grammar",
            "top_p",
            "top_k",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "repeat_penalty",
        )
    )
    | {
        "prompts": ["Hi"],
        "on_error": "null",
        "max_tokens": 9,
        "temperature": 0,
        "seed": 1,
        "truncate": False,
    },
    "_mindful.llm_if_each": {
        "contents": ["Hi"],
        "on_error": "null",
        "condition": "It greets.",
        "model": None,
    },
    "_mindful.replay": {"run": 1, "model": "default", "thresholds": {}},
    "_mindful.row_parts": {"contents": ["Hi"]},
    "_mindful.summary_text": {"state": ["Hi"]},
}
FUNCTIONS = """
    select p.pronamespace::regnamespace || '.' || p.proname as name, p.prokind as kind,
        array(select format_type(t, null) from unnest(p.proargtypes) t) as types, p.proargnames as names
    from pg_proc p
    where (p.pronamespace = 'mindful'::regnamespace
            or p.pronamespace = '_mindful'::regnamespace and p.proname = any (%s))
        and has_function_privilege('mindful_user', p.oid, 'execute')
"""
COMMAND_LINE = [
    "replay_export_record",
    "replay_hash",
    "training_model",
    "training_start",
    "training_running",
    "training_finish",
    "training_fail",
]
"""Functions of the schema _mindful that users call through the command line."""


class Raw(str):
    """JSON as it is sent."""

    __slots__ = ()


@dataclass(frozen=True)
class Function:
    """A function as the catalog has it."""

    name: str
    kind: str
    arguments: Mapping[str, str]

    def statement(
        self, given: Mapping[str, Any], shown: LiteralString = "count(x)"
    ) -> tuple[sql.Composed, list[Any]]:
        """Call it with these arguments, and show this of each row x."""
        passed = [self._passed(name, value) for name, value in given.items()]
        verb = "call {}({})" if self.kind == "p" else f"select {shown} from {{}}({{}}) x"
        statement = sql.SQL(verb).format(
            sql.Identifier(*self.name.split(".")), sql.SQL(", ").join(one for one, _ in passed)
        )
        return statement, [value for _, value in passed]

    def _passed(self, name: str, value: Any) -> tuple[sql.Composed, Any]:
        kind = self.arguments[name]
        place = "%s"
        if kind == "anycompatible":
            kind = "jsonb"
        if kind == "jsonb" and value is not None and not isinstance(value, Raw):
            value = json.dumps(value)
        if isinstance(value, list) and len(value) == 1:  # a client takes long to write an array of quotes
            place, value = "array[%s]", value[0]
        named = sql.Composed([]) if self.kind == "a" else sql.SQL("{} => ").format(sql.Identifier(name))
        return named + sql.SQL(f"{place}::{kind}"), value


def functions(connection: psycopg.Connection, internal: Sequence[str] = COMMAND_LINE) -> dict[str, Function]:
    """The functions that a user may call, by name, and some of the schema _mindful."""
    return {
        name.removeprefix("mindful.")
        + " on_error" * ("on_error" in (names or ()) and name[0] != "_"): Function(
            name, kind, dict(zip(names or (), types, strict=False))
        )
        for name, kind, types, names in connection.execute(FUNCTIONS, [list(internal)]).fetchall()
    }


def internals(connection: psycopg.Connection) -> dict[str, Function]:
    """The functions in Python that a user may call and need not."""
    names = connection.execute(
        """select proname::text from pg_proc where pronamespace = '_mindful'::regnamespace
               and prorettype <> 'trigger'::regtype and proname <> all (%s)
               and prolang = (select oid from pg_language where lanname = 'plpython3u')""",
        [COMMAND_LINE],
    ).fetchall()
    found = functions(connection, [name for (name,) in names])
    return {name: function for name, function in found.items() if name.startswith("_")}
