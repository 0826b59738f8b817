"""Ages, shares and times at the edges of their types: no call fails, and no time enters that clients cannot read."""

import re
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, fails, one
from support.forgetting import talk
from support.memories import remember, remember_all

ROOT = Path(__file__).parents[3]
UNREADABLE = ("4713-01-01 BC", "0001-01-01 00:00:00+00", "9999-12-31", "294276-12-31")


def test_every_power_of_the_code_goes_through_one_function() -> None:
    found = {
        str(path.relative_to(ROOT / "sql")): calls
        for path in sorted((ROOT / "sql").rglob("*.sql"))
        if (calls := [call for line in _code(path) for call in _powers(line)])
    }
    assert found == {"core/bound.sql": ["power("]}


def _code(path: Path) -> list[str]:
    text = re.sub(r"^comment on .*?;$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [line for line in text.splitlines() if not line.lstrip().startswith("--")]


def _powers(line: str) -> list[str]:
    line = re.sub(r"'[^']*'", "''", line)
    # Squares, and what has a bounded exponent, cannot underflow.
    line = re.sub(r"\^ 2\b|2\.0 \^ least\(|exp\(-greatest\(least\(", "", line)
    return re.findall(r"(?<![_\w])(?<!_mindful\.)(?:power|exp)\(| \^ ", line)


def test_an_old_message_is_recalled(scripted: None, ana: psycopg.Connection) -> None:
    session = one(ana, "select session_start()")
    ana.execute("select message_insert(%s, 'user', 'I like tea.', created_at => '1938-01-01')", (session,))
    ana.execute("select setting_set('recall_half_life_days', '1')")
    for as_of in ("now()", "'9999-12-30'", "'infinity'", "'-infinity'", "'0001-01-02 00:00+00'"):
        assert one(ana, f"select content, recency >= 0 from memory_recall('tea', as_of => {as_of})") == (
            "I like tea.",
            True,
        )
    assert one(ana, "select llm_chat('Is there tea?', model => %s)", SCRIPTED_GENERATOR)


def test_an_old_memory_has_a_value_fades_and_is_pruned(ana: psycopg.Connection) -> None:
    remember_all(ana, "I like tea.", "I like rye.")
    ana.execute("update memory set created_at = '1938-01-01'")
    ana.execute("select setting_set('retention_half_life_days', '0.01')")
    assert ana.execute(
        "select value > 0 and value < 1e-20 from memory_prune(max_count => 0, dry_run => true)"
    ).fetchall() == [
        (True,),
        (True,),
    ]
    talk(ana, "I live in Oslo.")
    ana.execute("select memory_consolidate()")
    ana.execute("update memory set created_at = '1938-01-01' where kind = 'fact'")
    ana.execute("select setting_set('consolidation_decay_half_life_days', '1')")
    ana.execute("update consolidation set finished_at = '1938-01-01'")
    assert one(ana, "select status from memory_consolidate()") == "completed"
    assert one(ana, "select min(importance) from memory") == pytest.approx(0.05)


def test_a_share_nearer_to_nothing_than_a_number_can_be_is_nothing(ana: psycopg.Connection) -> None:
    first, second, third = remember_all(ana, "A.", "B.", "C.")
    ana.execute("select memory_insert('D.', importance => 1e-40)")
    ana.execute("select memory_insert_many(%s)", (Jsonb([{"content": "E.", "importance": 1e-60}]),))
    ana.execute("insert into memory_link values (default, %s, %s, 'x', 1e-40)", (first, second))
    ana.execute("insert into memory_link values (default, %s, %s, 'x', 1e-40)", (second, third))
    assert ana.execute("select weight from memory_neighbors(%s, 2)", (first,)).fetchall() == [(0,), (0,)]
    ana.execute("select message_insert(session_start(), 'user', 'F.', %s)", (Jsonb({"confidence": 1e-70}),))
    assert one(ana, "select confidence from conversation") == 0
    with fails("22023"):
        ana.execute("select setting_set('recall_neighbor_share', '1e-200')")


def test_every_time_of_a_tenants_table_is_bounded(db: psycopg.Connection) -> None:
    columns = db.execute(
        """select c.relname, a.attname, exists (
               select from pg_constraint k where k.conrelid = c.oid and k.contype = 'c' and k.convalidated
                   and k.conkey = array[a.attnum] and pg_get_constraintdef(k.oid) ~ '_mindful.time_is_readable')
           from pg_class c
           join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and a.atttypid = 'timestamptz'::regtype
           where c.relnamespace = 'mindful'::regnamespace and c.relkind = 'r'
               and exists (select from pg_attribute t where t.attrelid = c.oid and t.attname = 'tenant')"""
    ).fetchall()
    assert len(columns) > 25
    assert [(table, column) for table, column, is_bounded in columns if not is_bounded] == []


def test_every_function_that_takes_a_time_bounds_it(ana: psycopg.Connection) -> None:
    memory = remember(ana, "I like tea.")
    session = one(ana, "select session_start()")
    calls = {
        "key_create": "'x', expires_at => %s",
        "memory_consolidate": "since => %s",
        "memory_insert": "'x', valid_from => %s",
        "memory_list": "as_of => %s",
        "memory_neighbors": f"{memory}, as_of => %s",
        "memory_recall": "'tea', as_of => %s",
        "memory_update": f"{memory}, 'x', valid_to => %s",
        "message_insert": f"'{session}', 'user', 'x', created_at => %s",
    }
    known = ana.execute(
        """select distinct proname from pg_proc where pronamespace = 'mindful'::regnamespace
               and 'timestamptz'::regtype = any (proargtypes)"""
    ).fetchall()
    assert {name for (name,) in known} == set(calls)
    for name, arguments in calls.items():
        for moment in UNREADABLE:
            with fails("22008", "0001-01-02"):
                ana.execute(f"select mindful.{name}({arguments})", (moment,))
    for filter_ in ({"since": UNREADABLE[0]}, {"before": UNREADABLE[-1]}):
        with fails("22008"):
            ana.execute("select memory_forget(filter => %s)", (Jsonb(filter_),))
    with fails("22008"):
        ana.execute("select replay_run(%s, %s)", (SCRIPTED_GENERATOR, Jsonb({"since": UNREADABLE[0]})))
    with fails("22023"):
        ana.execute("select memory_prune(older_than => '1001 years')")
    with fails("22023"):
        ana.execute("select message_insert(%s, 'user', 'x', created_at => '-infinity')", (session,))
    for moment in UNREADABLE:
        with fails("23514", hint=None):
            ana.execute("update memory set created_at = %s", (moment,))


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12", "UTC"])
def test_the_first_and_the_last_day_are_read_everywhere(ana: psycopg.Connection, zone: str) -> None:
    ana.execute(f"set timezone = '{zone}'")
    for moment in ("0001-01-02 00:00+00", "9999-12-30 23:59+00"):
        remember(ana, "I like tea.", valid_from=moment)
    first, last = ana.execute("select valid_from from memory order by id").fetchall()
    assert first[0].astimezone(UTC) == datetime(1, 1, 2, tzinfo=UTC)
    assert last[0].astimezone(UTC) == datetime(9999, 12, 30, 23, 59, tzinfo=UTC)


def test_texts_of_the_first_and_the_last_day_are_consolidated(ana: psycopg.Connection) -> None:
    session = one(ana, "select session_start()")
    for moment in ("0001-01-02 00:00+00", "9999-12-30 23:59+00", "2026-01-01"):
        for text in (
            "I live in Oslo.",
            "Yesterday I went to Paris.",
            "I leave tomorrow.",
            "I ran 300 days ago.",
        ):
            ana.execute("select message_insert(%s, 'user', %s, created_at => %s)", (session, text, moment))
    assert one(ana, "select status, error from memory_consolidate()") == ("completed", None)


def test_rows_of_earlier_versions_fail_no_consolidation(
    ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    talk(ana, "I live in Oslo.")
    ana.execute("select memory_consolidate()")
    db.execute("alter table mindful.memory drop constraint memory_created_at_range")
    db.execute("alter table mindful.memory drop constraint memory_valid_from_range")
    talk(ana, "I live in Bergen.")
    ana.execute("update memory set created_at = '0044-03-15 BC', valid_from = '0044-03-15 BC'")
    assert one(ana, "select status, error from memory_consolidate()") == ("completed", None)


def test_turns_keep_their_order_whatever_the_clock_says(ana: psycopg.Connection) -> None:
    session = one(ana, "select session_start()")
    for moment in ("2099-01-01", "1999-01-01", "2050-01-01"):
        ana.execute(
            "select message_insert(%s, 'user', %s, created_at => %s)", (session, f"At {moment}.", moment)
        )
    ana.execute("select llm_chat('And now?', %s, model => %s)", (session, SCRIPTED_GENERATOR))
    turns = ana.execute(
        "select id, turn, content from memory where session_id = %s order by turn", (session,)
    ).fetchall()
    assert [turn for _, turn, _ in turns] == [1, 2, 3, 4, 5]
    assert sorted(turns) == turns
    shown = ana.execute(
        "select content from session_context(%s, 'Then?', %s)", (session, SCRIPTED_GENERATOR)
    ).fetchall()
    told = [content for (content,) in shown if content.startswith("At ")]
    assert told == ["At 2099-01-01.", "At 1999-01-01.", "At 2050-01-01."]
    assert one(ana, "select max(recency) from memory_recall('At', 10)") == 1
    assert one(ana, "select status from memory_consolidate()") == "completed"
    assert (
        ana.execute(
            "select value from memory_prune(max_count => 0, kinds => '{message}', dry_run => true) where value > 0.5"
        ).fetchall()
        == []
    )
