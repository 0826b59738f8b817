"""Ways to become another role, to change what the server logs, and to stand in for objects of the extension."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, fails, one
from support.files import readable_folder

SECRET = "The safe opens with 4711."


@pytest.fixture
def victim(scripted: None, ana: psycopg.Connection) -> psycopg.Connection:
    """Ana, with a secret."""
    ana.execute("select memory_insert(%s)", (SECRET,))
    return ana


def test_other_roles(victim: psycopg.Connection, bob: psycopg.Connection, roles: Mapping[str, str]) -> None:
    """Becomes another role by SET ROLE and SET SESSION AUTHORIZATION."""
    for role in (
        roles["ana"],
        roles["admin"],
        roles["application"],
        "postgres",
        "mindful_admin",
        "mindful_reader",
    ):
        for statement in (f'set role "{role}"', f'set session authorization "{role}"'):
            with fails("42501", hint=None):
                bob.execute(statement)
    assert bob.execute("select content from memory").fetchall() == []


def test_temporary_objects(victim: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Places a temporary table, function, operator and type where functions would find them first."""
    bob.execute("create temp table memory (like mindful.memory)")
    bob.execute("create temp table setting (like mindful.setting)")
    bob.execute("create function pg_temp._tenant() returns text language sql as $$ select 'owned' $$")
    bob.execute("create function pg_temp.lower(text) returns text language sql as $$ select 1 / 0 $$")
    bob.execute("set search_path = pg_temp, mindful, public")
    bob.execute("select mindful.memory_insert('The bicycle is in the cellar.')")
    assert bob.execute("select content from mindful.memory_recall('bicycle safe')").fetchall() == [
        ("The bicycle is in the cellar.",)
    ]
    assert bob.execute("select tenant from mindful.memory").fetchall() == [(bob.info.user,)]
    assert bob.execute("select count(*) from pg_temp.memory").fetchone() == (0,)


def test_operators_beside_pgvector(
    victim: psycopg.Connection, db: psycopg.Connection, admin: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Adds a better operator to pgvector's schema, for vectors in half precision."""
    options = Jsonb({"dims": 64, "vector_type": "halfvec"})
    admin.execute("select model_register('half', 'embedder', 'scripted', '', %s)", (options,))
    admin.execute("select model_default_set('half', force => true)")
    schema = one(db, "select extnamespace::regnamespace::text from pg_extension where extname = 'vector'")
    db.execute(f'grant create, usage on schema {schema} to "{bob.info.user}"')
    for statement in (
        "create table loot (what text)",
        "grant all on loot to public",
        f"""create function steal(halfvec, vector) returns double precision language plpgsql as $$
           begin insert into {schema}.loot select content from mindful.memory; return 0; end $$""",
        "create operator <=> (leftarg = halfvec, rightarg = vector, function = steal)",
    ):
        bob.execute(f"set search_path = {schema}; {statement}")
    assert one(victim, "select content from memory_recall('How does the safe open?')") == SECRET
    victim.execute("""select setting_set('memory_duplicates', '"join_near"')""")
    victim.execute("select memory_insert('The safe opens with 4711!')")
    victim.execute("select llm_chat('How does the safe open?', model => %s)", (SCRIPTED_GENERATOR,))
    victim.execute("select * from embedding_compare('safe', '{half}')")
    assert bob.execute("select * from loot").fetchall() == []


def test_settings_of_the_log(bob: psycopg.Connection) -> None:
    """Has the server log statements, parameters and plans of its session."""
    for statement in (
        "set log_statement = 'all'",
        "set log_min_messages = 'debug5'",
        "set log_min_error_statement = 'debug5'",
        "set log_min_duration_statement = 0",
        "set auto_explain.log_min_duration = 0; load 'auto_explain'",
        "alter system set log_statement = 'all'",
        "select pg_read_file(pg_current_logfile())",
        "select * from pg_ls_logdir()",
    ):
        with fails("42501", hint=None):
            bob.execute(statement)


def test_statements_of_others(victim: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Reads the statements that other roles run now."""
    shown = bob.execute(
        "select query from pg_stat_activity where usename <> current_user and query <> ''"
    ).fetchall()
    assert {query for (query,) in shown} <= {"<insufficient privilege>"}
    assert shown


def test_rows_of_others_by_reference(
    victim: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Names the row of another tenant in links, evidence, updates, forgetting and history."""
    other = one(db, "select id from memory")
    own = one(bob, "select memory_insert('x')")
    for call in (
        f"memory_link_insert({own}, {other}, 'about')",
        f"memory_evidence_insert({own}, {other}, 'safe')",
        f"memory_update({other}, 'owned')",
        f"memory_neighbors({other})",
        f"memory_history({other})",
        f"memory_get({other})",
        f"self_review({other})",
        f"answer_label({other}, true)",
    ):
        with pytest.raises(psycopg.Error):
            bob.execute(f"select {call}")
    with contextlib.suppress(psycopg.Error):
        bob.execute("select memory_forget(ids => array[%s]::bigint[])", (other,))
    assert victim.execute("select content from memory").fetchall() == [(SECRET,)]


def test_import_of_what_others_have(
    victim: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Imports lines from another role's table, a view, a catalog and a foreign tenant's name."""
    db.execute("create table public.lines (line jsonb)")
    db.execute("create view public.shown as select * from public.lines")
    for name in ("public.lines", "public.shown", "pg_catalog.pg_class", "mindful.memory"):
        with pytest.raises(psycopg.Error):
            bob.execute("select _mindful.memory_import(%s::regclass)", (name,))
    bob.execute("create temp table own (line jsonb)")
    bob.execute(
        """insert into own values (jsonb_build_object('type', 'memory', 'id', 1, 'tenant', %s::text,
               'kind', 'fact', 'content', 'planted'))""",
        (victim.info.user,),
    )
    with contextlib.suppress(psycopg.Error):
        bob.execute("select _mindful.memory_import('own')")
    with contextlib.suppress(psycopg.Error):
        bob.execute("select memory_import((select jsonb_agg(line) from own))")
    assert victim.execute("select content from memory").fetchall() == [(SECRET,)]


def test_files_that_are_no_files(admin: psycopg.Connection, db: psycopg.Connection) -> None:
    """Registers a FIFO, a directory, an empty file and a file of the magic alone."""
    with readable_folder() as folder:
        os.mkfifo(folder / "fifo", 0o666)
        (folder / "empty").write_bytes(b"")
        (folder / "magic").write_bytes(b"GGUF")
        admin.execute("set statement_timeout = '10s'")
        for name in ("fifo", ".", "empty", "magic", "../../../../dev/zero"):
            with pytest.raises(psycopg.Error) as caught:
                admin.execute(
                    "select mindful.model_register('m', 'generator', 'llama_cpp', %s)", (str(folder / name),)
                )
            assert caught.value.sqlstate in {"58P01", "XX001"}, name
    assert one(db, "select 1") == 1


LITERAL = re.compile(r"--[^\n]*|(\w?)'((?:[^']|'')*)'")


def test_no_body_reads_otherwise_by_a_setting(db: psycopg.Connection) -> None:
    """Calls a function first with standard_conforming_strings off, by which backslashes in its texts are read."""
    bodies = db.execute(
        """select p.oid::regproc::text, p.prosrc from pg_proc p join pg_language l on l.oid = p.prolang
           where p.pronamespace::regnamespace::text ~ 'mindful$' and l.lanname = 'plpgsql'
               and not coalesce(p.proconfig @> '{standard_conforming_strings=on}', false)"""
    ).fetchall()
    assert len(bodies) > 100
    assert [
        (name, found[2])
        for name, body in bodies
        for found in LITERAL.finditer(body)
        if "\\" in (found[2] or "") and found[1] != "E"
    ] == []
