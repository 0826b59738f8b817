"""Ways past the rows themselves: keys, sequences, channels, plans that a connection kept, and types that run code."""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, Connect, fails, one

SECRET = "The safe opens with 4711."
_HAS_TENANT = """exists (select from pg_attribute t where t.attrelid = c.oid and t.attname = 'tenant'
    and not (t.attnum = any ({})))"""


def test_a_key_of_all_tenants(db: psycopg.Connection) -> None:
    """Looks for a unique key or a reference whose violation tells what another tenant has."""
    unique = f"""select i.indexrelid::regclass::text from pg_class c join pg_index i on i.indrelid = c.oid
        where c.relnamespace = 'mindful'::regnamespace and (i.indisunique or i.indisexclusion)
            and {_HAS_TENANT.format("i.indkey::smallint[]")}"""
    foreign = f"""select f.conname::text from pg_class c join pg_constraint f on f.conrelid = c.oid
        where c.relnamespace = 'mindful'::regnamespace and f.contype = 'f' and f.confrelid <> 'model'::regclass
            and {_HAS_TENANT.format("f.conkey")}"""
    # Whoever finds the hash of another's key has the key.
    assert db.execute(unique).fetchall() == [("api_key_hash_key",)]
    assert db.execute(foreign).fetchall() == []
    db.execute("create unique index everybodys on memory (source, source_key)")
    assert len(db.execute(unique).fetchall()) == 2


def test_names_of_adapters_by_references(
    scripted: None, db: psycopg.Connection, ana: psycopg.Connection, connect: Connect
) -> None:
    """Tells by a violated reference whether another tenant has an adapter of a name."""
    ana.execute("select memory_insert(%s)", (SECRET,))
    db.execute(
        """insert into model (name, kind, provider, source, options, sha256, base, trained_on, granted_to)
           values ('anas-style', 'generator', 'scripted', '', '{}', '', %s, 1, '{}')""",
        (SCRIPTED_GENERATOR,),
    )
    db.execute("set session_replication_role = replica")  # past the training that it would need
    db.execute(
        "insert into model_tenant (tenant, model, training_id) values (%s, 'anas-style', 1)", (ana.info.user,)
    )
    db.execute("reset session_replication_role")
    assert one(ana, "select count(*) from model where name = 'anas-style'") == 1
    bob = connect("bob")
    memory = one(bob, "select memory_insert('mine')")
    answers: dict[str, set[str]] = {}
    for name in ("anas-style", "nobodys-style"):
        for statement in (
            "insert into embedding_job (id, model, content_hash) values ({id}, '{name}', 'x')",
            "insert into embedding_job_failed (id, model, content_hash, attempts, error, enqueued_at)"
            " values ({id}, '{name}', 'x', 1, 'x', now())",
            "insert into model_tenant (model) values ('{name}')",
            "select setting_set('default_generator', '\"{name}\"')",
            "select _mindful.model_consented('{name}')",
            "select _mindful.default_base('{name}')",
            "select llm_generate('Hi', model => '{name}')",
            "select adapter_activate('{name}')",
            "select embedding_enqueue('{name}')",
            "select * from model where name = '{name}'",
            "select replay_run('{name}')",
        ):
            try:
                with bob.transaction(force_rollback=True):
                    answer = str(bob.execute(statement.format(name=name, id=memory).encode()).fetchall())
            except psycopg.Error as error:
                answer = f"{error.sqlstate} {error.diag.message_primary}"
            answers.setdefault(statement, set()).add(answer.replace(name, ""))
    assert {statement: found for statement, found in answers.items() if len(found) > 1} == {}


def test_sequences(db: psycopg.Connection) -> None:
    """Looks for a sequence that a role may read or set, or draw from where it need not."""
    rights = """select c.oid::regclass::text, r.name, w.name from pg_class c
        cross join unnest(array['mindful_user', 'mindful_reader', 'mindful_admin', 'mindful_application', 'public'])
            r (name)
        cross join unnest(array['usage', 'select', 'update']) w (name)
        where c.relnamespace::regnamespace::text ~ 'mindful$' and c.relkind = 'S'
            and has_sequence_privilege(r.name, c.oid, w.name)"""
    drawn = [("memory_id_seq", role, "usage") for role in ("mindful_application", "mindful_user")]
    assert sorted(db.execute(rights).fetchall()) == drawn
    db.execute("grant select on sequence mindful.generation_id_seq to mindful_reader")
    assert len(db.execute(rights).fetchall()) == 3


def test_channels(connect: Connect, queueing: None, ana: psycopg.Connection) -> None:
    """Listens on the channels of workers and of consolidation, without a right in mindful."""
    stranger = connect("stranger")
    stranger.execute("listen mindful_job")
    stranger.execute("listen mindful_consolidation")
    ana.execute("select setting_set('consolidation_after', '1')")
    ana.execute("select message_insert(session_start(), 'user', %s)", (SECRET,))
    ana.execute("select memory_consolidate()")
    heard = {(one_.channel, one_.payload) for one_ in stranger.notifies(timeout=20, stop_after=2)}
    assert ("mindful_job", "") in heard
    for channel, payload in heard:
        assert channel == "mindful_job" or set(payload) <= set('{}":, idstaucomplefnrg0123456789'), payload
        assert ana.info.user not in payload


def test_plans_and_cursors_that_another_role_left(
    scripted: None, db: psycopg.Connection, ana: psycopg.Connection, connect: Connect
) -> None:
    """Runs statements and functions that another role prepared in the same connection, without DISCARD."""
    bob = connect("bob")
    ana.execute("select memory_insert(%s)", (SECRET,))
    statements = {
        "rows": "select content from mindful.memory",
        "recalled": "select content from mindful.memory_recall('safe opens')",
        "listed": "select content from mindful.memory_list()",
        "counted": "select memories from mindful.memory_overview",
        "exported": "select x from mindful.memory_export() x where x ->> 'type' = 'memory'",
    }
    db.execute("set plan_cache_mode = force_generic_plan")
    for name, statement in statements.items():
        db.execute(f"prepare {name} as {statement}".encode())
    for user in (ana, bob, ana, bob):
        db.execute(f'set role "{user.info.user}"'.encode())
        for name in statements:
            for _ in range(6):
                found = db.execute(f"execute {name}".encode()).fetchall()
            assert bool(found) is (user is ana), name
        db.execute("reset role")


def test_a_prepared_statement_of_another_tenant(scripted: None, connect: Connect) -> None:
    """Runs what was prepared for one tenant of an application for the next one, by generic plans."""
    application = connect("application")
    application.execute("set plan_cache_mode = force_generic_plan")
    application.execute("set mindful.tenant = 'customer-7'")
    application.execute("select memory_insert(%s)", (SECRET,))
    application.execute("prepare rows as select content from memory")
    application.execute("prepare recalled as select content from memory_recall('safe opens')")
    for tenant in ("customer-7", "customer-8", "customer-7", "customer-8"):
        application.execute("select set_config('mindful.tenant', %s, false)", (tenant,))
        for name in ("rows", "recalled"):
            found = application.execute(f"execute {name}".encode()).fetchall()
            assert found == ([(SECRET,)] if tenant == "customer-7" else []), name


def test_a_type_whose_check_runs_for_others(
    scripted: None,
    db: psycopg.Connection,
    ana: psycopg.Connection,
    admin: psycopg.Connection,
    connect: Connect,
) -> None:
    """Attaches a table whose column's type, index and default run code, and waits for runs with others' rights."""
    bob = connect("bob")
    db.execute(f'create schema own authorization "{bob.info.user}"')
    bob.execute("grant usage on schema own to public")
    bob.execute("create table own.loot (who text, owner text)")
    bob.execute("grant insert on own.loot to public")
    bob.execute(
        """create function own.note(value text) returns boolean language plpgsql set search_path = ''
           as $$ begin insert into own.loot values (current_user, session_user); return true; end $$"""
    )
    bob.execute(
        """create function own.spring(value text) returns boolean language plpgsql immutable set search_path = ''
           as $$ begin return own.note(value); end $$"""
    )
    bob.execute("create domain own.trap as text check (own.spring(value))")
    bob.execute(
        """create table own.note (id integer primary key, body own.trap,
               seen boolean default own.spring('x'), check (own.spring(body)))"""
    )
    bob.execute("create index on own.note ((own.spring(body)))")
    bob.execute("select memory_attach('own.note', 'body')")
    bob.execute("insert into own.note values (1, 'My bicycle.'), (2, 'My boat.')")
    ana.execute("select memory_insert(%s)", (SECRET,))
    admin.execute("select setting_set('embedding_mode', '\"async\"', 'global')")
    bob.execute("update own.note set body = 'My red boat.' where id = 2")
    for run in (
        "embedding_run()",
        "embedding_enqueue()",
        "retention_run()",
        "consolidation_run(all_unread => true)",
        "memory_index_rebuild()",
        "mindful_status()",
    ):
        admin.execute(f"select {run}".encode())
    ana.execute("select memory_consolidate(), memory_forget(everything => true)")
    bob.execute("select memory_recall('boat'), memory_consolidate()")
    bob.execute("delete from own.note where id = 1")
    assert one(bob, "select count(*) from own.loot") > 0
    assert bob.execute("select distinct who, owner from own.loot").fetchall() == [
        (bob.info.user, bob.info.user)
    ]
    with fails("42501", hint=None):
        bob.execute("create cast (own.trap as text) without function")


@pytest.mark.parametrize(
    "statement",
    [
        "merge into memory using (values ({id})) v (x) on id = x when matched then update set content = 'owned'",
        "merge into memory using (values ({id})) v (x) on id = x when matched then delete",
        "copy (select content from memory) to program 'cat'",
        "select * from only memory tablesample system (100) where id = {id} for update",
        "create rule r as on update to memory do instead nothing",
        "create policy p on memory using (true)",
        "alter table memory disable row level security",
        "alter function memory_recall owner to current_user",
        "create or replace function mindful.memory_count() returns bigint language sql as 'select 1'",
        "create function _mindful.tenant(x text) returns text language sql as $$ select '' $$",
        "create operator mindful.= (leftarg = text, rightarg = text, function = texteq)",
        "comment on table memory is 'owned'",
        "refresh materialized view consolidation_summary",
        "reindex table memory",
        "select lo_import('PG_VERSION')",
        "select lo_export(lo_create(0), '/tmp/mindful.out')",
        "select pg_logical_slot_get_changes('x', null, null)",
        "select pg_create_physical_replication_slot('x')",
        "create publication p for table memory",
        "select query_to_xml('select content from mindful.memory', true, false, '')::text ~ '4711' or 1 / 0 = 1",
        "select mindful.key_use('x')",
        "select pg_terminate_backend(pid) from pg_stat_activity where usename <> current_user and usename is not null",
    ],
)
def test_statements_that_are_not_for_users(
    scripted: None, statement: str, ana: psycopg.Connection, connect: Connect
) -> None:
    """Goes for rows and objects by MERGE, rules, policies, publications, large objects, XML and signals."""
    bob = connect("bob")
    memory = one(ana, "select memory_insert(%s)", SECRET)
    found: list[tuple[object, ...]] = []
    with suppress(psycopg.Error):
        cursor = bob.execute(statement.format(id=memory).encode())
        found = cursor.fetchall() if cursor.description else []
    assert found in ([], [(False,)]), found
    assert one(ana, "select content from memory") == SECRET
    assert one(ana, "select count(*) from memory_recall('safe')") == 1
