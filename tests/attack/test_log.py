"""What an operator reads of a tenant's texts in the server's log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, one

MARK = "SECRETMARK"

ARGUMENTS = """
select p.oid::regproc::text, array_agg(a.name order by a.number), array_agg(a.type::regtype::text order by a.number)
from pg_proc p, unnest(p.proargnames[1:p.pronargs], p.proargtypes::oid[]) with ordinality a (name, type, number)
where p.pronamespace = 'mindful'::regnamespace and p.prokind = 'f'
    and has_function_privilege(p.oid, 'execute')
    and p.proname not in ('memory_attach', 'model_unload', 'consolidation_run', 'tuning_run')
group by p.oid order by 1
"""

NAMES = {
    *(
        "action",
        "adapter",
        "base",
        "budget_kind",
        "dataset_sha256",
        "direction",
        "extractor",
        "format",
        "key",
        "kind",
    ),
    *(
        "kinds",
        "level",
        "method",
        "mode",
        "model",
        "models",
        "name",
        "provider",
        "relation",
        "relations",
        "role",
    ),
    *(
        "schedule",
        "scope",
        "source",
        "source_key",
        "specialization",
        "split",
        "tenant",
        "value",
        "prompt_format",
    ),
}
"""Arguments that choose or name something: errors quote them. All others are content."""


@pytest.fixture
def log(db: psycopg.Connection) -> Callable[[], str]:
    """What the server's log has had since the test began."""
    file = one(db, "select pg_current_logfile()")
    assert file is not None, "the server has no log file: logging_collector is off"
    start = one(db, "select (pg_stat_file(%s)).size", file)
    return lambda: one(db, "select pg_read_file(%s, %s, 100000000)", file, start)


def value(name: str, kind: str, text: str) -> Any:
    """An argument: the text where it is content, else NULL."""
    if name in NAMES:
        return None
    return {
        "text": text,
        "text[]": [text],
        "jsonb": f'[{{"content": "{text}", "question": "{text}", "{text}": 1}}]',
    }.get(kind)


@pytest.mark.parametrize("times", [1, 40_000])
def test_texts_in_the_log_by_any_function(
    bob: psycopg.Connection, admin: psycopg.Connection, log: Callable[[], str], times: int
) -> None:
    """Makes every function fail with a text as a bound parameter, and reads the log."""
    admin.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))
    bob.execute("set statement_timeout = '2s'")
    failed = 0
    for function, names, types in bob.execute(ARGUMENTS).fetchall():
        given = [value(name, kind, MARK * times) for name, kind in zip(names, types, strict=True)]
        call = ", ".join(f"{name} => %s::{kind}" for name, kind in zip(names, types, strict=True))
        objects = [
            text.replace("[", "").replace("]", "") if isinstance(text, str) else text for text in given
        ]
        for arguments in (given, objects):
            try:
                bob.execute(f"select {function}({call})", arguments)
            except psycopg.Error:
                failed += 1
    assert failed > 40
    assert MARK not in log()


def test_texts_in_the_log_by_broken_rows(bob: psycopg.Connection, log: Callable[[], str]) -> None:
    """Breaks constraints of tables with a text, and reads the log."""
    refused = 0
    for statement in (
        "insert into memory (kind, content) values ('message', %s)",
        "insert into memory (kind, content) values ('none', %s)",
        "insert into memory (content, importance) values (%s, 7)",
        "insert into memory (content, source, source_key) select %s, 'a', 'b' from generate_series(1, 2)",
        "insert into session (session_id, title) values (null, %s)",
        "insert into memory_evidence (id, source_id, quote) values (1, 2, %s)",
        "insert into outcome (decision_id, correct, grader, note) values (1, true, 'x', %s)",
        "insert into tool (name, function, description, json_schema) values ('x', 'y', %s, '{}')",
    ):
        try:
            bob.execute(statement, (MARK,))
        except psycopg.Error:
            refused += 1
    assert refused > 5
    assert MARK not in log()


def test_texts_in_the_log_by_an_answer_that_does_not_fit(
    bob: psycopg.Connection, admin: psycopg.Connection, log: Callable[[], str]
) -> None:
    """Has a model answer with a tenant's text where the schema refuses it, and reads the log."""
    admin.execute(
        "select model_register('repeats', 'generator', 'scripted', '', %s)",
        (f'{{"replies": [["", "{{\\"name\\": \\"{MARK}\\"}}"]]}}',),
    )
    schema = '{"type": "object", "properties": {"name": {"type": "string", "not": {"minLength": 3}}}}'
    with contextlib.suppress(psycopg.Error):
        bob.execute("select llm_extract(%s, %s, model => 'repeats')", (MARK, schema))
    with pytest.raises(psycopg.Error):
        bob.execute("select llm_extract_many(%s, %s, model => 'repeats')", ([MARK], schema))
    assert MARK not in log()


def test_texts_in_the_log_by_background_work(
    db: psycopg.Connection, bob: psycopg.Connection, queueing: None, log: Callable[[], str]
) -> None:
    """Leaves a text that fails in every worker, and reads the log."""
    bob.execute("select memory_insert(%s)", (f"I love {MARK}",))
    bob.execute("select message_insert(session_start(), 'user', %s)", (f"I am called {MARK}",))
    db.execute("update model set options = '{\"fail\": true}', provider = 'scripted' where kind = 'embedder'")
    for statement in (
        "select embedding_run()",
        "call worker_run(max_seconds => 1)",
        "select memory_consolidate()",
        "select retention_run()",
    ):
        with contextlib.suppress(psycopg.Error):
            db.execute(statement)
    assert MARK not in log()
