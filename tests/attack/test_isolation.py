"""What one tenant cannot see, another role cannot reach, and no setting can move."""

import re
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, Connect, fails
from support.rare import insert_rare

TABLES = (
    "session",
    "memory",
    "memory_term",
    "memory_count",
    "forget_receipt",
    "memory_evidence",
    "memory_duplicate",
    "memory_link",
    "memory_embedding_all_minilm_l6_v2",
    "attachment",
    "embedding_job",
    "embedding_job_failed",
    "generation",
    "review",
    "calibrator",
    "threshold",
    "gold",
    "decision",
    "outcome",
    "tuning",
    "action_gain",
    "consolidation",
    "memory_extraction",
    "memory_statement",
    "memory_entity",
    "training_sample",
    "training_sample_memory",
    "training",
    "training_memory",
)


@pytest.fixture
def victim(ana: psycopg.Connection, db: psycopg.Connection) -> psycopg.Connection:
    """Ana, with a row in every table."""
    db.execute(f'create schema private authorization "{ana.info.user}"')
    ana.execute("create table private.note (id int primary key, body text)")
    ana.execute("select memory_attach('private.note', 'body')")
    ana.execute("insert into private.note values (1, 'The safe opens with 4711.')")
    row = ana.execute(
        "select message_id from llm_chat_detail('How does the safe open?', model => %s)",
        (SCRIPTED_GENERATOR,),
    ).fetchone()
    ana.execute("select self_review(%s, %s)", (*(row or ()), SCRIPTED_GENERATOR))
    ana.execute("select answer_label(%s, true, 'Indeed.')", row)
    ana.execute(
        "select gold_evaluate(%s, model => %s)",
        ('[{"question": "Where is the safe?", "answers": ["cellar"]}]', SCRIPTED_GENERATOR),
    )
    ana.execute("select confidence_tune(%s)", (SCRIPTED_GENERATOR,))
    ana.execute("select memory_evidence_insert(max(id), min(id), 'safe opens') from memory")
    ana.execute("select memory_link_insert(max(id), min(id), 'about') from memory")
    ana.execute("select _mindful.memory_repeat(min(id)) from memory")
    ana.execute("select memory_forget(array[memory_insert('Forgotten.')])")
    ana.execute("select embedding_enqueue('scripted-embedder')")
    insert_rare(ana)
    ana.execute("select memory_insert('Anna Miller lives in Boston.', 'document')")
    ana.execute("select memory_consolidate()")
    ana.execute("select memory_evidence_insert(max(id), min(id), 'safe opens') from memory")
    ana.execute("select memory_link_insert(max(id), min(id), 'about') from memory")
    db.execute("select training_configure(%s, 'chat')", (SCRIPTED_GENERATOR,))
    ana.execute("select setting_set('training_consent', 'true')")
    ana.execute('select replay_run(%s, \'{"level": "information"}\')', (SCRIPTED_GENERATOR,))
    ana.execute("select _mindful.training_start(max(id), _mindful.replay_hash(max(id))) from consolidation")
    return ana


def test_every_table_of_the_schema_is_guarded(bob: psycopg.Connection) -> None:
    """Looks for a table without forced row-level security."""
    open_tables = bob.execute(
        """select relname from pg_class where relnamespace = 'mindful'::regnamespace and relkind = 'r'
           and not (relrowsecurity and relforcerowsecurity)"""
    ).fetchall()
    assert open_tables == []


def test_nobody_sees_anothers_rows(victim: psycopg.Connection, bob: psycopg.Connection) -> None:
    """Counts the rows of every table, and recalls another tenant's text."""
    for table in TABLES:
        seen = [
            connection.execute(f"select count(*) from {table}").fetchone() for connection in (victim, bob)
        ]
        assert seen[0] != (0,), table
        assert seen[1] == (0,), table
    assert bob.execute("select content from memory_recall('safe', 100)").fetchall() == []
    assert bob.execute("select * from conversation").fetchall() == []


def test_nobody_writes_anothers_rows(
    victim: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Updates, deletes and inserts rows of another tenant, and writes into its session."""
    tenant = victim.info.user
    session_id, memory_id = (
        db.execute(
            "select session_id, max(id) from memory where session_id is not null group by 1"
        ).fetchone()
        or ()
    )
    assert bob.execute("update memory set content = 'owned'").rowcount == 0
    kept = db.execute("select count(*) from memory").fetchone()
    bob.execute("select _mindful.memory_delete(array[%s])", (memory_id,))
    bob.execute("select _mindful.delete('session', %s)", (Jsonb([{"session_id": str(session_id)}]),))
    assert db.execute("select count(*) from memory").fetchone() == kept
    for statement in (
        f"insert into memory (tenant, content) values ('{tenant}', 'planted')",
        f"insert into session (tenant) values ('{tenant}')",
        f"select _mindful.memory_delete(array[{memory_id}], '{tenant}')",
        f"insert into deletion (tenant, relation, keys) values ('{tenant}', 'memory', '[]')",
        "delete from memory",
        "insert into memory_embedding_all_minilm_l6_v2 (tenant, id, embedding, content_hash)"
        f" values ('{tenant}', {memory_id}, array_fill(1, array[384])::vector, '')",
    ):
        with fails("42501", hint=None):
            bob.execute(statement)
    with fails("42704"):
        bob.execute("select message_insert(%s, 'user', 'planted')", (session_id,))
    with fails("42704"):
        bob.execute("select llm_chat('planted', %s)", (session_id,))
    with fails("42704"):
        bob.execute("select * from session_context(%s, 'planted')", (session_id,))


def test_records_of_what_happened_are_not_rewritten(victim: psycopg.Connection) -> None:
    """Rewrites its own records: generations, reviews, decisions, labels, calibrators."""
    for table in ("generation", "review", "calibrator", "threshold", "gold", "decision", "outcome"):
        for statement in (f"update {table} set tenant = 'x'", f"delete from {table}"):
            with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedColumn)):
                victim.execute(statement)


def test_a_tenant_is_believed_of_an_application_only(connect: Connect) -> None:
    """Sets mindful.tenant without being an application, and reads as one from a second tenant."""
    application, bob = connect("application"), connect("bob")
    for connection in (application, bob):
        connection.execute("set mindful.tenant = 'customer-7'")
        connection.execute("select memory_insert('The order is late.')")
    assert application.execute("select tenant from memory").fetchall() == [("customer-7",)]
    assert bob.execute("select tenant from memory").fetchall() == [(bob.info.user,)]
    application.execute("set mindful.tenant = 'customer-8'")
    assert application.execute("select count(*) from memory").fetchone() == (0,)


def test_a_reader_sees_figures_of_all_and_words_of_none(
    victim: psycopg.Connection, reader: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Reads texts, titles, vectors and lexemes with the rights of a reader."""
    assert reader.execute("select sum(memories) from memory_overview").fetchone() == (5,)
    assert bob.execute("select * from memory_overview").fetchall() == []
    assert reader.execute("select count(*) from model_usage").fetchone() != (0,)
    assert reader.execute("select count(*) from confidence_daily").fetchone() != (0,)
    for statement in (
        "select content from memory",
        "select metadata from memory",
        "select lexeme from memory_term",
        "select title from session",
        "select * from conversation",
        "select embedding from memory_embedding_all_minilm_l6_v2",
        "select signals from review",
        "select memory_insert('x')",
        "select llm_generate('x')",
    ):
        with fails("42501", hint=None):
            reader.execute(statement)


def test_the_rights_of_user_and_reader_do_not_add_up(
    db: psycopg.Connection, victim: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Reads all texts as user and reader at once."""
    db.execute(f'grant mindful_reader to "{bob.info.user}"')
    try:
        assert bob.execute("select content from memory").fetchall() == []
    finally:
        db.execute(f'revoke mindful_reader from "{bob.info.user}"')


def test_an_administrator_reads_nobody(victim: psycopg.Connection, admin: psycopg.Connection) -> None:
    """Reads every table as an administrator."""
    for table in TABLES:
        with fails("42501", hint=None):
            admin.execute(f"select * from {table}")


def test_a_stranger_can_do_nothing(stranger: psycopg.Connection) -> None:
    """Calls functions and reads models without any role of mindful."""
    for statement in (
        "select mindful.llm_generate('x')",
        "select * from mindful.model",
        "select _mindful.tenant()",
    ):
        with fails("42501", hint=None):
            stranger.execute(statement)


def test_objects_on_the_callers_path_are_not_used(bob: psycopg.Connection, db: psycopg.Connection) -> None:
    """Places functions and a table before those of mindful on the search path."""
    db.execute(f'create schema trap authorization "{bob.info.user}"')
    bob.execute("create function trap.btrim(text, text) returns text language sql as $$ select 1 / 0 $$")
    bob.execute(
        "create function trap.format(text, variadic text[]) returns text language sql as $$ select 1 / 0 $$"
    )
    bob.execute("create table trap.memory (like mindful.memory)")
    bob.execute("set search_path = trap, mindful, pg_catalog, public")
    bob.execute("select mindful.memory_insert('The path is pinned.')")
    assert bob.execute("select count(*) from mindful.memory_recall('path')").fetchone() == (1,)
    assert bob.execute("select count(*) from trap.memory").fetchone() == (0,)


def test_state_of_a_session_does_not_outlive_a_change_of_role(
    db: psycopg.Connection, connect: Connect
) -> None:
    """Recalls and chats in a connection that another role used before."""
    ana, bob = connect("ana"), connect("bob")
    db.execute(f'set role "{ana.info.user}"')
    db.execute("select memory_insert('The safe opens with 4711.')")
    db.execute("select llm_chat('How does the safe open?', max_tokens => 4)")
    db.execute("reset role")
    db.execute("discard all")
    db.execute(f'set role "{bob.info.user}"')
    assert db.execute("select * from mindful.memory_recall('safe')").fetchall() == []
    shown = db.execute(
        "select part from mindful.session_context(mindful.session_start(), 'How does the safe open?')"
    ).fetchall()
    assert shown == [("system",), ("message",)]


def test_a_reader_looks_beyond_what_is_documented(
    reader: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Reads relations that the documentation does not grant to readers and administrators."""
    roles = (Path(__file__).parents[2] / "docs" / "roles.md").read_text()
    for connection, role in ((reader, "mindful_reader"), (admin, "mindful_admin")):
        may = re.search(rf"^\| `{role}` \|(.*)\|$", roles, re.MULTILINE)
        assert may is not None
        relations = {name for (name,) in connection.execute("select relname from pg_class").fetchall()}
        documented = set(re.findall(r"`([a-z_]+)`", may[1])) & relations
        granted = connection.execute(
            """select relname from pg_class where relnamespace = 'mindful'::regnamespace
               and relkind in ('r', 'v', 'm', 'p') and has_any_column_privilege(%s, oid, 'select')""",
            (role,),
        ).fetchall()
        assert {name for (name,) in granted} == documented, role
