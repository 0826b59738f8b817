"""Settings: who may change them, what they may be, and every change of them."""

from decimal import Decimal
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb
from support import fails, one


def get(connection: psycopg.Connection, key: str) -> object:
    row = connection.execute("select setting_get(%s)", (key,)).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.smoke
def test_the_nearest_scope_is_in_force(
    admin: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    key = "model_slot_wait_ms"
    assert get(ana, key) == 60000
    admin.execute("select setting_set(%s, '5000', 'global')", (key,))
    assert get(ana, key) == 5000
    assert ana.execute("select setting_set(%s, '70')", (key,)).fetchone() == (70,)
    assert (get(ana, key), get(bob, key)) == (70, 5000)
    ana.execute("select setting_set(%s, null)", (key,))
    assert get(ana, key) == 5000
    with fails("42704"):
        get(ana, "nothing")


@pytest.mark.smoke
def test_every_change_is_kept(ana: psycopg.Connection) -> None:
    ana.execute("select setting_set('generation_log', 'false', reason => 'private work')")
    ana.execute("select setting_set('generation_log', 'true')")
    rows = ana.execute("select value, reason, changed_by from setting order by id").fetchall()
    assert rows == [(False, "private work", ana.info.user), (True, None, ana.info.user)]
    for statement in ("update setting set value = '1'", "delete from setting"):
        with fails("42501", hint=None):
            ana.execute(statement)


@pytest.mark.parametrize(
    ("key", "value", "scope", "sqlstate"),
    [
        ("nothing", 1, "user", "42704"),
        (None, 1, "user", "42704"),
        ("model_slots", 4, "user", "22023"),
        ("model_slots", 4, "galaxy", "22023"),
        ("model_slot_wait_ms", 1.5, "user", "22023"),
        ("model_slot_wait_ms", "soon", "user", "22023"),
        ("model_slot_wait_ms", 0, "user", "22023"),
        ("model_slot_wait_ms", 10**9, "user", "22023"),
        ("model_slot_wait_ms", 10**400, "user", "22023"),
        ("generation_log", 1, "user", "22023"),
        ("generation_log", {}, "user", "22023"),
    ],
)
@pytest.mark.shares
def test_bad_settings_are_refused(
    ana: psycopg.Connection, key: str | None, value: object, scope: str, sqlstate: str
) -> None:
    with fails(sqlstate):
        ana.execute("select setting_set(%s, %s, %s)", (key, Jsonb(value), scope))
    assert ana.execute("select count(*) from setting").fetchone() == (0,)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("'chat_memories', 5", 5),
        ("'chat_memories', 5::smallint", 5),
        ("'chat_memories', '5'", 5),
        ("'chat_memories', '5'::jsonb", 5),
        ("value => 5, key => 'chat_memories'", 5),
        ("'chat_temperature', 0.5", 0.5),
        ("'chat_temperature', 1e-05::double precision", 1e-05),
        ("'chat_clarify', true", True),
        ("'chat_clarify', 'true'", True),
        ("'answer_length', 'short'", "short"),
        ("'answer_length', 'short'::varchar", "short"),
        ("'answer_length', '\"short\"'", "short"),
        ("'answer_length', to_jsonb('short'::text)", "short"),
        ("'user_name', '42'", "42"),
        ("'user_name', 42", "42"),
        ("'user_name', 'true'", "true"),
        ("'user_name', '{\"a\": 1}'", '{"a": 1}'),
        ("'user_name', '\"Ana'", '"Ana'),
        ("'user_name', '\"\\u0000\"'", '"\\u0000"'),
        ("'user_name', '\"null\"'", "null"),
        ("'user_name', 'null'", None),
        ("'user_name', null", None),
        ("'user_name', 'null'::jsonb", None),
        ("'user_name', (select 'Ana')", "Ana"),
    ],
)
def test_a_value_is_read_by_the_type_of_its_setting(
    ana: psycopg.Connection, given: LiteralString, stored: object
) -> None:
    ana.execute("set search_path = ''")
    ana.execute(sql.SQL("select mindful.setting_set({})").format(sql.SQL(given)))
    assert ana.execute("select value from mindful.setting").fetchall() == [(stored,)]


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize(
    ("key", "value", "stored"),
    [
        ("chat_memories", 5, 5),
        ("chat_memories", "5", 5),
        ("chat_memories", Jsonb(5), 5),
        ("chat_temperature", 0.5, 0.5),
        ("chat_temperature", Decimal("0.5"), 0.5),
        ("chat_clarify", True, True),
        ("answer_length", "short", "short"),
        ("answer_length", Jsonb("short"), "short"),
        ("answer_length", None, None),
    ],
)
def test_a_driver_passes_values_as_parameters(
    ana: psycopg.Connection, key: str, value: object, stored: object, prepare: bool
) -> None:
    ana.execute("select setting_set(%s, %s, scope => %s)", (key, value, "user"), prepare=prepare)
    assert ana.execute("select value from setting").fetchall() == [(stored,)]


@pytest.mark.parametrize(
    "given",
    [
        "'chat_memories', 'many'",
        "'chat_memories', 2.5",
        "'chat_memories', '1e999999'",
        "'chat_memories', array[5]",
        "'chat_temperature', 'NaN'::real",
        "'chat_clarify', 1",
        "'answer_length', 'tiny'",
        "'answer_length', 5",
    ],
)
@pytest.mark.shares
def test_a_value_of_another_type_is_refused(ana: psycopg.Connection, given: LiteralString) -> None:
    with fails("22023"):
        ana.execute(sql.SQL("select setting_set({})").format(sql.SQL(given)))


def test_an_initial_value_is_read_like_a_set_one(ana: psycopg.Connection) -> None:
    ana.execute("select setting_define('app.units', 'text', 'Units.', 'metric')")
    ana.execute("select setting_define('app.depth', 'integer', 'Depth.', initial => 3)")
    ana.execute("select setting_define('app.name', 'text', 'Name.')")
    assert [get(ana, key) for key in ("app.units", "app.depth", "app.name")] == ["metric", 3, None]


def test_what_holds_for_all_is_an_administrators(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    with fails("42501", hint="^Only members of mindful_admin"):
        ana.execute("select setting_set('model_slots', '64', 'global')")
    with fails("42501", hint="scope => 'user'.*Only members of mindful_admin"):
        ana.execute("select setting_set('chat_memories', '4', 'global')")
    for arguments in (b"'chat_memories', 'global'", b"scope => 'global'"):
        with fails("42501", hint="Only members of mindful_admin"):
            ana.execute(b"select setting_reset(" + arguments + b")")
    with fails("42501", hint=None):
        ana.execute(
            "insert into setting (tenant, scope, key, value) values ('', 'global', 'model_slots', '64')"
        )
    with fails("42501", hint=None):
        ana.execute(
            "insert into setting (tenant, scope, key, value) values (%s, 'user', 'chat_memories', '4')",
            (bob.info.user,),
        )
    with fails("23514", hint=None):
        ana.execute("insert into setting (scope, key, value) values ('global', 'model_slots', '64')")


@pytest.mark.parametrize(
    ("scope", "key", "value"),
    [
        ("user", "model_slots", "64"),
        ("user", "chat_memories", "1000"),
        ("user", "retention_fact_days", '"x"'),
    ],
)
def test_an_insert_is_held_to_what_setting_set_allows(
    ana: psycopg.Connection, scope: str, key: str, value: str
) -> None:
    with fails("22023"):
        ana.execute("insert into setting (scope, key, value) values (%s, %s, %s)", (scope, key, value))


@pytest.mark.smoke
def test_who_changed_a_setting_and_when_cannot_be_forged(
    ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    ana.execute(
        "insert into setting (scope, key, value, changed_by, changed_at) "
        "values ('user', 'chat_memories', '1', %s, '1999-12-31')",
        (bob.info.user,),
    )
    row = ana.execute("select changed_by, changed_at > now() - interval '1 minute' from setting").fetchone()
    assert row == (ana.info.user, True)


def test_a_session_is_named_where_a_setting_is_its_own_and_nowhere_else(
    ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    session = ana.execute("select session_start()").fetchone()
    assert session is not None
    for connection, scope, given, sqlstate in (
        (ana, "session", (None,), "22023"),
        (ana, "user", session, "22023"),
        (ana, "session", ("00000000-0000-0000-0000-000000000000",), "42704"),
        (bob, "session", session, "42704"),
    ):
        with fails(sqlstate):
            connection.execute("select setting_set('chat_memories', '5', %s, %s)", (scope, *given))


def test_a_sessions_settings_are_forgotten_with_it(ana: psycopg.Connection) -> None:
    session = ana.execute("select session_start()").fetchone()
    assert session is not None
    ana.execute("select setting_set('user_name', '\"Zebediah\"', 'session', %s)", session)
    counts = ana.execute("select relation, action, rows from memory_forget(session_id => %s)", session)
    assert ("setting", "deleted", 1) in counts.fetchall()
    assert ana.execute("select count(*) from setting").fetchone() == (0,)


def test_the_log_can_be_turned_off(ana: psycopg.Connection) -> None:
    ana.execute("select setting_set('generation_log', 'false')")
    ana.execute("select llm_generate('Hi', model => 'scripted')")
    assert ana.execute("select count(*) from generation").fetchone() == (0,)


def test_one_setting_or_all_of_a_scope_are_taken_back(
    ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    initial = {key: get(ana, key) for key in ("chat_memories", "chat_temperature", "chat_clarify")}
    for connection in (ana, bob):
        connection.execute("select setting_set('chat_memories', '7'), setting_set('chat_temperature', '0.5')")
    ana.execute("select setting_set('chat_clarify', 'true')")
    reset = "select setting_reset(%s)"
    assert ana.execute(reset, ("chat_memories",)).fetchone() == (1,)
    assert ana.execute(reset, ("chat_memories",)).fetchone() == (0,)
    assert ana.execute("select setting_reset()").fetchone() == (2,)
    assert {key: get(ana, key) for key in initial} == initial
    assert get(bob, "chat_memories") == 7
    with fails("42704"):
        ana.execute(reset, ("no such",))


UNITS = """select setting_define('app.units', 'text', 'Units of measurement.',
    choices => '{metric,imperial}', prompt => 'Use %s units.')"""


def test_a_tenant_defines_settings_of_its_own(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    ana.execute(UNITS)
    ana.execute("select setting_define('app.depth', 'integer', 'Depth.', '3', 1, 9)")
    assert (get(ana, "app.units"), get(ana, "app.depth")) == (None, 3)
    ana.execute("select setting_set('app.units', '\"metric\"')")
    assert get(ana, "app.units") == "metric"
    with fails("42704"):
        get(bob, "app.units")
    for value in ('"cubits"', "1"):
        with fails("22023"):
            ana.execute("select setting_set('app.units', %s)", (value,))
    with fails("22023"):
        ana.execute("select setting_set('app.depth', '10')")
    with fails("42704"):
        bob.execute("select setting_set('app.units', '\"metric\"')")
    listed = ana.execute("select key, type, value from active_setting where key like 'app.%' order by key")
    assert listed.fetchall() == [("app.depth", "integer", 3), ("app.units", "text", "metric")]
    bob.execute("select setting_define('app.units', 'boolean', 'Another.')")
    assert bob.execute("select type from active_setting where key like 'app.%'").fetchall() == [("boolean",)]


def test_an_own_setting_is_defined_anew_and_deleted_with_its_values(ana: psycopg.Connection) -> None:
    ana.execute("select setting_define('app.depth', 'integer', 'Depth.', '3', 1, 9)")
    ana.execute("select setting_set('app.depth', '5')")
    ana.execute("select setting_define('app.depth', 'integer', 'Depth.', '4', 1, 20)")
    assert get(ana, "app.depth") == 5
    with fails("55000"):
        ana.execute("select setting_define('app.depth', 'text', 'Depth.')")
    assert ana.execute("select setting_undefine('app.depth')").fetchone() == (True,)
    assert ana.execute("select setting_undefine('app.depth')").fetchone() == (False,)
    assert ana.execute("select count(*) from setting").fetchone() == (0,)
    assert ana.execute("select setting_undefine('chat_memories')").fetchone() == (False,)
    assert get(ana, "chat_memories") == 3


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("'chat_memories', 'integer', 'No dot.'", "22023"),
        ("'App.Units', 'text', 'Upper case.'", "22023"),
        ("'app.units', 'date', 'No such type.'", "22023"),
        ("'app.units', null, 'No type.'", "22004"),
        ("'app.units', 'integer', 'Initial.', '\"a\"'", "22023"),
        ("'app.units', 'integer', 'Choices.', choices => '{a}'", "22023"),
        ("'app.units', 'text', 'Prompt.', prompt => 'Use units.'", "22023"),
        ("'app.units', 'text', repeat('a', 20000)", "54000"),
    ],
)
@pytest.mark.shares
def test_bad_definitions_are_refused(ana: psycopg.Connection, arguments: str, sqlstate: str) -> None:
    with fails(sqlstate):
        ana.execute(f"select setting_define({arguments})")


def test_a_tenant_has_at_most_100_settings_of_its_own(ana: psycopg.Connection) -> None:
    ana.execute("select setting_define('app.s' || n, 'text', 'One of many.') from generate_series(1, 100) n")
    ana.execute("select setting_define('app.s7', 'text', 'The same again.')")
    with fails("54000"):
        ana.execute("select setting_define('app.more', 'text', 'One too many.')")


@pytest.mark.shares
def test_a_description_is_a_noun_phrase_that_ends_with_a_full_stop(ana: psycopg.Connection) -> None:
    wrong = ana.execute(
        """select key, description from setting_definition
           where description !~ '^[A-Z].*\\.$'
               or description ~ '^(?:A|The|How|What|When|Where|Which|After|By|From|Towards) '"""
    ).fetchall()
    assert wrong == []


def test_an_integer_with_a_fraction_of_zero_is_stored_as_one(ana: psycopg.Connection) -> None:
    for given in ("30.0", "3e1", "30.000"):
        ana.execute("select setting_set('chat_memories', %s::jsonb)", (given,))
        assert one(ana, "select setting_get('chat_memories')::text") == "30"
    assert one(ana, "select count(*) from session_context(session_start(), 'Hi')") > 0
