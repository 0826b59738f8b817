"""Attacks by attached tables, one a function."""

from collections.abc import Iterator, Mapping

import psycopg
import pytest
from support import fails, one


@pytest.fixture
def team(db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection) -> Iterator[None]:
    """A schema that ana and bob share."""
    db.execute("create schema team")
    db.execute(f'grant create, usage on schema team to "{ana.info.user}", "{bob.info.user}"')
    yield
    db.execute("drop schema team cascade")


def test_operator_in_a_shared_schema_runs_as_who_attached(
    team: None, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Adds an operator to a schema where another tenant attached a table."""
    ana.execute("select memory_insert('The safe opens with 4711.')")
    ana.execute("create table team.ticket (id int primary key, subject varchar(50), body varchar(200))")
    ana.execute(f'grant insert on team.ticket to "{bob.info.user}"')
    ana.execute("select memory_attach('team.ticket', 'subject || body')")
    bob.execute("create table team.loot (who text, what text)")
    bob.execute("grant all on team.loot to public")
    bob.execute(
        """create function team.steal(varchar, varchar) returns text language plpgsql as $$
           begin insert into team.loot select current_user, content from mindful.memory; return ''; end $$"""
    )
    bob.execute("create operator team.|| (leftarg = varchar, rightarg = varchar, function = team.steal)")
    bob.execute("insert into team.ticket values (1, 'a', 'b')")
    assert bob.execute("select * from team.loot").fetchall() == []


def test_a_superuser_who_attaches_a_users_table(db: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Changes the type of a column of its table after a superuser attached it.

    The owner of the table chooses what its values do when they become text.
    """
    db.execute(f'create schema own authorization "{bob.info.user}"')
    bob.execute("create table own.t (id int primary key, body text)")
    bob.execute("create table own.loot (who text)")
    try:
        db.execute("select memory_attach('own.t', 'body')")
    except psycopg.Error:
        return  # refused: fine
    bob.execute("create type own.trap as (x text)")
    bob.execute(
        """create function own.spring(own.trap) returns text language plpgsql as $$
           begin insert into own.loot values (current_user); return 'x'; end $$"""
    )
    bob.execute("create cast (own.trap as text) with function own.spring(own.trap)")
    try:
        bob.execute("alter table own.t alter body type own.trap using row(body)::own.trap")
        bob.execute("insert into own.t values (1, row('x'))")
    except psycopg.Error:
        pass
    assert bob.execute("select * from own.loot").fetchall() == []


def test_a_trigger_function_made_beforehand(
    team: None, db: psycopg.Connection, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Makes the trigger function before a superuser attaches the table.

    Replacing a function leaves its owner as he is, and a superuser may replace anybody's.
    """
    trigger_function = """select p.proname, p.proowner::regrole::text
        from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where t.tgrelid = 'team.doc'::regclass and t.tgname = 'remember_inserted'"""
    ana.execute("create table team.doc (id int primary key, body text)")
    ana.execute("select memory_attach('team.doc', 'body')")
    name, _ = one(ana, trigger_function)
    ana.execute("select memory_detach('team.doc')")
    bob.execute(
        f'create function team."{name}"() returns trigger language plpgsql as $$ begin return null; end $$'
    )
    try:
        db.execute("select memory_attach('team.doc', 'body')")
    except psycopg.Error:
        return
    assert one(db, f"select owner from ({trigger_function}) f (name, owner)") == db.info.user


def test_a_function_of_the_triggers_name(team: None, ana: psycopg.Connection) -> None:
    """Has attaching overwrite a function that it made."""
    ana.execute("create table team.doc (id int primary key, body text)")
    ana.execute(
        "create function team.doc_remember() returns trigger language plpgsql as $$ begin return old; end $$"
    )
    try:
        ana.execute("select memory_attach('team.doc', 'body')")
    except psycopg.Error:
        return
    assert "return old" in str(
        one(ana, "select string_agg(prosrc, '') from pg_proc where proname = 'doc_remember'")
    )


def test_tables_whose_names_begin_alike(team: None, ana: psycopg.Connection) -> None:
    """Attaches two tables whose names are cut to the same one."""
    names = [f"team.{'a' * 50}_{end}" for end in "xy"]
    for name, column in zip(names, ("one", "two"), strict=True):
        ana.execute(f"create table {name} (id int primary key, {column} text)")
        ana.execute("select memory_attach(%s::regclass, %s)", (name, column))
    for name in names:
        ana.execute(f"insert into {name} values (1, 'text')")
    sources = ana.execute("select source from memory order by source").fetchall()
    assert sources == [(name,) for name in names]


def test_hostile_names_of_columns_and_tables(team: None, ana: psycopg.Connection) -> None:
    """Names a column and a table so that their names end a string."""
    column = '"id$function$;select 1;select $function$"'
    table = """team."t %1$s '"" \\ x\""""
    ana.execute(f"create table {table} ({column} int primary key, body text)".replace("%", "%%"), ())
    ana.execute("select memory_attach(%s::regclass, 'body')", (table,))
    ana.execute(f"insert into {table} values (1, 'text')".replace("%", "%%"), ())
    assert ana.execute("select source_key, content from memory").fetchall() == [("1", "text")]
    assert one(ana, "select memory_detach(%s::regclass)", table) == 1


def test_primary_keys_that_read_alike(team: None, ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Overwrites and forgets a memory by a primary key that reads like another.

    Bob may touch his own rows only, and must not overwrite or forget the memory of another.
    """
    ana.execute(
        "create table team.doc (a text, b text, owner name default current_user, body text, primary key (a, b))"
    )
    ana.execute("alter table team.doc enable row level security")
    ana.execute("create policy own on team.doc using (owner = current_user)")
    ana.execute(f'grant insert, select, delete on team.doc to "{bob.info.user}"')
    ana.execute("select memory_attach('team.doc', 'body')")
    ana.execute("insert into team.doc (a, b, body) values ('x,y', 'z', 'The price is 100.')")
    bob.execute("insert into team.doc (a, b, body) values ('x', 'y,z', 'The price is 1.')")
    bob.execute("delete from team.doc")
    assert ana.execute("select content from memory").fetchall() == [("The price is 100.",)]


@pytest.mark.parametrize(
    ("content", "setting"),
    [
        ("case when 'a\\b' = E'a\\\\b' then 'x' end", "standard_conforming_strings = off"),
        ("'team.\"Doc\"'::regclass", "quote_all_identifiers = on"),
        ("coalesce((body = null)::text, 'x')", "transform_null_equals = on"),
        ("'{a,NULL}'::text[]", "array_nulls = off"),
        ("to_tsvector(body)", "default_text_search_config = 'simple'"),
        ("xml 'a'", "xmloption = document"),
    ],
)
def test_a_writers_settings_change_the_text(
    team: None, ana: psycopg.Connection, bob: psycopg.Connection, content: str, setting: str
) -> None:
    """Writes a row under a setting that changes how its text reads."""
    ana.execute('create table team."Doc" (id int primary key, body text)')
    ana.execute(f'grant all on team."Doc" to "{bob.info.user}"')
    ana.execute("select memory_attach('team.\"Doc\"', %s)", (content,))
    ana.execute("""insert into team."Doc" values (1, 'the printers')""")
    bob.execute(f"set {setting}")
    bob.execute("""insert into team."Doc" values (2, 'the printers')""")
    (mine,), (his,) = ana.execute("select content from memory order by id").fetchall()
    assert mine == his


# They change when a statement ends, where and how its rows are stored, or what a client sees: not what a text reads.
HARMLESS = (
    "timeout$|transaction_|table_?space|^(vacuum|local_preload|client|gin_pending|backslash|check|escape|restrict|synchronize)_"
    "|^default_t(able|oast)_"
)


def test_all_settings_that_change_a_text_are_pinned(team: None, ana: psycopg.Connection) -> None:
    """Writes a row under a setting that a later version of the server has."""
    ana.execute("create table team.doc (id int primary key, body text)")
    ana.execute("select memory_attach('team.doc', 'body')")
    found = ana.execute(
        """select s.name from pg_settings s
           where s.context = 'user' and s.category ~ '^(Client Connection Defaults|Version and Platform)'
               and lower(s.name) not in (
                   select lower(split_part(c, '=', 1)) from pg_proc p, unnest(p.proconfig) c
                   where p.proname like 'remember!_%%' escape '!')
               and s.name !~ %s""",
        (HARMLESS,),
    ).fetchall()
    assert found == []


@pytest.mark.parametrize("setting", ["timezone = 'Asia/Tokyo'", "datestyle = 'German'"])
def test_a_writers_settings_change_the_key(
    team: None, ana: psycopg.Connection, bob: psycopg.Connection, setting: str
) -> None:
    """Deletes a row under a setting that changes how its key reads."""
    ana.execute("create table team.doc (at timestamptz primary key, body text)")
    ana.execute(f'grant all on team.doc to "{bob.info.user}"')
    ana.execute("select memory_attach('team.doc', 'body')")
    ana.execute("insert into team.doc values ('2024-01-31 00:00+0', 'x')")
    bob.execute(f"set {setting}")
    bob.execute("delete from team.doc")
    assert one(ana, "select count(*) from memory") == 0


def test_a_writer_turns_the_triggers_off(
    team: None, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Turns the triggers of an attached table off by row_security."""
    ana.execute("create table team.doc (id int primary key, body text)")
    ana.execute(f'grant all on team.doc to "{bob.info.user}"')
    ana.execute("select memory_attach('team.doc', 'body')")
    ana.execute("insert into team.doc values (1, 'x')")
    bob.execute("set row_security = off")
    bob.execute("delete from team.doc")
    assert one(ana, "select count(*) from memory") == 0


def test_detaching_anothers_table(
    team: None, ana: psycopg.Connection, bob: psycopg.Connection, roles: Mapping[str, str]
) -> None:
    """Detaches the table that another tenant attached."""
    ana.execute("create table team.doc (id int primary key, body text)")
    ana.execute("select memory_attach('team.doc', 'body')")
    with fails("42704"):
        bob.execute("select memory_detach('team.doc')")
    bob.execute(
        """insert into attachment (relation, source, content, mode)
           values ('team.doc', 'team.doc', 'body', 'sync')"""
    )
    with fails("42501", hint=None):
        bob.execute("select memory_detach('team.doc')")
    with fails("42501", hint=None):
        bob.execute(
            "insert into attachment (tenant, relation, source, content, mode)"
            " values (%s, 'team.doc', 'x', 'body', 'sync')",
            (roles["ana"],),
        )
    ana.execute("insert into team.doc values (1, 'x')")
    assert one(ana, "select count(*) from memory") == 1
