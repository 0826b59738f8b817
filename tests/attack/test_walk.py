"""Every relation and function that a role reaches, and every catalog of the server: none tells of another tenant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, Connect, one
from support.calls import ARGUMENTS, Function, functions
from support.fill import fill

WORD = "zanzibar"
"""What every text of Ana holds, and no text of anybody else."""
READABLE = """select c.oid::regclass::text, array(
        select quote_ident(a.attname) from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            and has_column_privilege(c.oid, a.attnum, 'select'))
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = any (%s) and has_schema_privilege(n.oid, 'usage') and c.relkind in ('r', 'p', 'v', 'm')
        and has_any_column_privilege(c.oid, 'select')
    order by 1"""


def rows(connection: psycopg.Connection) -> dict[str, Counter[str]]:
    """What a role reads, by relation."""
    found = connection.execute(READABLE, (["mindful", "_mindful"],)).fetchall()
    return {
        relation: Counter(
            row
            for (row,) in connection.execute(
                f"select row({', '.join(columns)})::text from {relation}".encode()
            ).fetchall()
        )
        for relation, columns in found
    }


@pytest.mark.parametrize("role", ["bob", "application"])
def test_every_relation(role: str, connect: Connect, db: psycopg.Connection, ana: psycopg.Connection) -> None:
    """Looks for a table or a view that reads otherwise once another tenant has rows in all tables."""
    attacker = connect(role)
    attacker.execute("set mindful.tenant = 'customer-8'")
    attacker.execute("select llm_chat('Where is the bicycle?', model => %s)", (SCRIPTED_GENERATOR,))
    before, others = rows(attacker), rows(ana)
    assert len(before) > 40
    fill(db, [ana.info.user, "customer-7"], 20)
    db.execute("update mindful.tenant_claim set by_role = true where tenant = %s", (ana.info.user,))
    assert rows(attacker) == before
    changed = rows(ana)
    assert len([relation for relation in others if changed[relation] != others[relation]]) > 30
    # The test would notice.
    db.execute("alter table mindful.session disable row level security")
    assert rows(attacker) != before


SAID = (
    f"""select setting_set('chat_system_prompt', to_jsonb('Speak of {WORD}.'::text))""",
    "select setting_set('training_consent', 'true')",
    f"select llm_chat('Where is {WORD}?', model => 'scripted')",
    f"select memory_insert('The safe in {WORD} opens with 4711.', source => 'diary')",
    f"select memory_insert('Anna Miller lives in {WORD}.', source => 'diary', source_key => 'lives')",
    f"select document_insert('The road to {WORD}.', 'guide.md')",
    f"select session_start(title => '{WORD}', system_prompt => '{WORD}')",
    f"select memory_update(max(id), '{WORD} is far.') from memory where content ~ 'Anna'",
    f"select memory_link_insert(max(id), min(id), '{WORD}') from memory",
    f"select memory_evidence_insert(max(id), min(id), '{WORD}') from memory where content ~ '{WORD}'",
    f"select memory_insert('I live in {WORD}.', 'document')",
    "select memory_consolidate()",
    f"select answer_label(id, true, 'Indeed {WORD}.') from memory where role = 'assistant'",
    f"""select gold_evaluate('[{{"question": "Where is {WORD}?", "answers": ["{WORD}"]}}]', 'scripted')""",
    """select replay_run('scripted', '{"level": "information"}')""",
    f"select setting_define('app.island', 'text', '{WORD}'), setting_set('app.island', '\"{WORD}\"')",
)
NAMES = ("diary", "guide.md", "app.island", "lives")


@pytest.fixture
def told(scripted: None, db: psycopg.Connection, ana: psycopg.Connection) -> dict[str, list[Any]]:
    """Identifiers of Ana's rows by type; all of her texts have the word."""
    db.execute("select training_configure(%s, 'chat')", (SCRIPTED_GENERATOR,))
    for statement in SAID:
        ana.execute(statement.encode())
    sessions = [str(found) for (found,) in ana.execute("select session_id from session").fetchall()]
    highest = one(ana, "select max(id) from memory")
    numbers = list(range(1, highest + 1))
    return {"uuid": sessions, "bigint": numbers, "integer": numbers, "text": list(NAMES)}


def guesses(function: Function, told: Mapping[str, list[Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield what a function is called with: as it is, and each argument as an identifier of somebody's."""
    given = dict(ARGUMENTS[function.name.removeprefix("mindful.")])
    yield given
    for name, kind in function.arguments.items():
        if re.search(r"(^|_)(id|ids|run|key|name|sources?)$", name):
            for found in told.get(kind.removesuffix("[]"), []):
                yield given | {name: [found] if kind.endswith("[]") else found}


def answers(
    user: psycopg.Connection, told: Mapping[str, list[Any]]
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield what every function answers to each guess, with what its error says."""
    for name, function in functions(user).items():
        for given in guesses(function, told) if " " not in name else ():
            statement, values = function.statement(given, "x::text")
            try:
                with user.transaction(force_rollback=True):
                    cursor = user.execute(statement, values)
                    yield name, given, str(cursor.fetchall() if cursor.description else "")
            except psycopg.Error as error:
                told_ = error.diag
                parts = told_.message_primary, told_.message_detail, told_.message_hint, told_.context
                yield name, given, str(parts)


def test_every_function(
    told: Mapping[str, list[Any]], connect: Connect, ana: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Calls every function with the identifiers of another tenant's rows, and looks for its words."""
    admin.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))
    bob = connect("bob")
    telling = set()
    for name, _, answer in answers(ana, told):
        telling |= {name} if WORD in answer else set()
        if len(telling) > 10:
            break
    assert len(telling) > 10
    assert [(name, given) for name, given, answer in answers(bob, told) if WORD in answer] == []


@pytest.mark.long
def test_every_catalog(told: Mapping[str, list[Any]], connect: Connect, db: psycopg.Connection) -> None:
    """Looks for another tenant's words in every catalog, statistic and view of the server."""
    for role in ("bob", "reader"):
        assert _telling(connect(role)) == []
    # The test would notice.
    db.execute(f"comment on table mindful.memory is '{WORD}'")
    assert _telling(connect("stranger"), "pg_description") == ["pg_description"]


def _telling(attacker: psycopg.Connection, *alone: str) -> list[str]:
    catalogs = ["pg_catalog", "information_schema", "public"]
    relations = [relation for relation, _ in attacker.execute(READABLE, (catalogs,)).fetchall()]
    assert len(relations) > 100
    attacker.execute("set jit = off")  # to compile information_schema.element_types takes seconds
    found = []
    for relation in alone or relations:
        with suppress(psycopg.Error):  # some call functions that are the superuser's
            # pg_stat_activity shows this statement.
            if one(attacker, f"select count(*) from {relation} r where r::text ~ '{WORD[:-1]}[{WORD[-1]}]'"):
                found.append(relation)
    return found
