"""No role stops another by a lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from support import SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR, Connect, fails, one
from support.memories import remember_all

# Those that conflict with what readers or writers take, and those that conflict with one another.
MODES = (
    "SHARE UPDATE EXCLUSIVE",
    "SHARE",
    "SHARE ROW EXCLUSIVE",
    "EXCLUSIVE",
    "ACCESS EXCLUSIVE",
)
RELATIONS = """select c.oid::regclass::text from pg_class c
    where c.relnamespace = 'mindful'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') order by 1"""


@pytest.mark.parametrize("role", ["ana", "reader", "application"])
def test_no_relation_can_be_locked(role: str, connect: Connect, db: psycopg.Connection) -> None:
    """Stops all tenants by LOCK TABLE, on every relation in every mode that others would notice."""
    attacker = connect(role)
    taken = []
    for (relation,) in db.execute(RELATIONS).fetchall():
        for mode in MODES:
            try:
                with attacker.transaction():
                    attacker.execute(f"lock table {relation} in {mode} mode nowait")
                taken.append((relation, mode))
            except (psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType):
                pass
    assert taken == []


def test_no_right_that_locks_is_granted_on_a_table(db: psycopg.Connection) -> None:
    """Locks a table by a right that an administrator granted for another purpose."""
    rights = """
        select c.oid::regclass::text, r.name, w.name
        from pg_class c
        cross join unnest(array['mindful_user', 'mindful_reader', 'mindful_application']) r (name)
        cross join unnest(array['update', 'delete', 'truncate', 'trigger', 'references']) w (name)
        where c.relnamespace = 'mindful'::regnamespace and c.relkind in ('r', 'p', 'v', 'm')
            and has_table_privilege(r.name, c.oid, w.name)"""
    assert db.execute(rights).fetchall() == []
    db.execute("grant delete on memory to mindful_user")
    assert db.execute(rights).fetchall() != []


def test_others_go_on_while_a_role_holds_all_it_can(
    connect: Connect, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    """Holds locks on all of its own rows, and every lock on tables that it gets, while another works."""
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    bob = connect("bob")
    remember_all(bob, "one", "two")
    with bob.transaction():
        for (relation,) in db.execute(RELATIONS).fetchall():
            for mode in (*MODES, "ROW EXCLUSIVE", "ROW SHARE", "ACCESS SHARE"):
                try:
                    with bob.transaction():
                        bob.execute(f"lock table {relation} in {mode} mode nowait")
                except psycopg.Error:
                    continue
        bob.execute("select from memory for update")
        ana.execute("set lock_timeout = '1s'")
        (kept,) = remember_all(ana, "Rex is a beagle.")
        assert one(ana, "select count(*) from memory_recall('beagle')") == 1
        ana.execute("select message_insert(session_start(), 'user', 'Who is Rex?')")
        ana.execute("select * from memory_forget(array[%s])", (kept,))


@pytest.mark.parametrize(
    "run",
    [
        "memory_index_rebuild()",
        "retention_run()",
        "consolidation_run(all_unread => true)",
        "embedding_retry()",
        "embedding_enqueue()",
    ],
)
def test_runs_of_an_administrator_that_wait_for_locked_rows(
    scripted: None, run: str, connect: Connect, ana: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Locks its own rows, so that an administrator's run for all waits for them and keeps others' rows locked."""
    bob = connect("bob")
    for tenant in (ana, bob):
        remember_all(tenant, "one", "two")
        tenant.execute("select message_insert(session_start(), 'user', 'I live in Bern.')")
        tenant.execute("update memory set created_at = now() - interval '9 days' where content = 'one'")
        tenant.execute("select setting_set('retention_fact_days', '5')")
        tenant.execute(
            """insert into embedding_job_failed (id, model, content_hash, attempts, error, enqueued_at)
               select id, %s, content_hash, 5, 'x', now() from memory where content = 'two'""",
            (SCRIPTED_EMBEDDER,),
        )
    with bob.transaction():
        for relation in ("memory", "embedding_job_failed", "consolidation"):
            bob.execute(f"select from {relation} for update".encode())
        admin.execute("set statement_timeout = '20s'")
        admin.execute(f"select {run}".encode())
    assert one(ana, "select count(*) from memory where content = 'one'") == int(run != "retention_run()")
    assert one(ana, "select count(*) from memory_recall('two')") > 0


def test_a_triggers_function_on_a_table_of_ones_own(
    connect: Connect, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Has the extension's trigger functions believe forged rows, by triggers on a table of its own."""
    (secret,) = remember_all(ana, "Rex is a beagle.")
    bob = connect("bob")
    functions = db.execute(
        """select p.oid::regproc::text from pg_proc p
           where p.pronamespace::regnamespace::text ~ 'mindful$' and p.prorettype = 'trigger'::regtype"""
    ).fetchall()
    assert len(functions) > 10
    bob.execute("create temp table forged as select * from memory")
    for (function,) in functions:
        with fails("42501", hint=None):
            bob.execute(
                f"create trigger t after delete on forged referencing old table as old_rows"
                f" for each statement execute function {function}()"
            )
    assert one(db, "select count(*) from memory_term where id = %s", secret) == 2


def test_rows_of_others_by_a_request_to_delete(
    connect: Connect, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Asks for another tenant's rows to be deleted, under its own name, the other's and a false setting."""
    (secret,) = remember_all(ana, "Rex is a beagle.")
    bob = connect("bob")
    bob.execute("select set_config('mindful.tenant', %s, false)", (ana.info.user,))
    bob.execute("select _mindful.memory_delete(array[%s])", (secret,))
    for statement in (
        f"select _mindful.memory_delete(array[{secret}], '{ana.info.user}')",
        f"insert into deletion (tenant, relation, keys) values ('{ana.info.user}', 'memory', '[{{\"id\": {secret}}}]')",
        "insert into deletion (tenant, relation, keys) values ('', 'tool', '[]')",
    ):
        with fails("42501", hint=None):
            bob.execute(statement)
    for relation in ("pg_authid", "forget_receipt", "memory; drop table memory", "generation"):
        with fails("23514", hint=None):
            bob.execute("select _mindful.delete(%s, '[{\"id\": 1}]')", (relation,))
    assert one(db, "select count(*) from memory where id = %s", secret) == 1
    assert one(db, "select count(*) from deletion") == 0


def test_all_advisory_locks_that_could_be_guessed(
    connect: Connect, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    """Holds the advisory locks of documents, accesses, consolidation and tuning as older versions named them."""
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    (kept,) = remember_all(ana, "Rex is a beagle.")
    stranger = connect("bob")
    tenant = ana.info.user
    for task in ("consolidation", "consolidation_ask", "tuning"):
        stranger.execute("select pg_advisory_lock(hashtextextended(%s, 0))", (f"mindful.{task} {tenant}",))
    stranger.execute("select pg_advisory_lock(hashtextextended(%s, 47))", (f"{tenant} guide.md",))
    stranger.execute("select pg_advisory_lock(1835626094, hashint8(i)) from generate_series(1, 1000) i")
    ana.execute("set lock_timeout = '1s'")
    ana.execute("select setting_set('consolidation_after', '1')")
    ana.execute("select document_insert('Press the button.', 'guide.md')")
    assert one(ana, "select memory_access_record(array[%s])", kept) == 1
    assert one(ana, "select count(*) from consolidation where status = 'pending'") == 1
    ana.execute("select memory_consolidate()")
    assert one(ana, "select consolidation_run()") == 0


def test_locks_of_another_tenant_by_their_names(connect: Connect, ana: psycopg.Connection) -> None:
    """Takes the locks of a tenant's documents and runs by their names, for itself and in the other's name."""
    bob = connect("bob")
    names = one(ana, "select array['consolidation', 'consolidation_ask', 'document ' || md5('guide.md')]")
    with bob.transaction():
        bob.execute("select set_config('mindful.tenant', %s, true)", (ana.info.user,))
        for name in names:
            bob.execute("select _mindful.lock(%s)", (name,))
            with fails("42501", hint=None), bob.transaction():
                bob.execute("insert into tenant_lock (tenant, task) values (%s, %s)", (ana.info.user, name))
        assert [one(ana, "select _mindful.lock_try(%s)", name) for name in names] == [True] * len(names)
        assert bob.execute("select * from tenant_lock").fetchall() == []


def test_no_advisory_lock_is_left_in_the_code() -> None:
    """Finds a lock that any role may take."""
    root = Path(__file__).parents[2]
    found = {
        kind: list(root.glob(f"{kind}/**/*{suffix}"))
        for kind, suffix in (
            ("sql", ".sql"),
            ("extension/router", ".sql"),
            ("plpy/src", ".py"),
            ("client/src", ".py"),
        )
    }
    assert all(found.values()), found
    sources = [path for paths in found.values() for path in paths]
    assert [
        path.name
        for path in sources
        if "pg_advisory" in path.read_text() or "try_advisory" in path.read_text()
    ] == []


DDL = {
    "model_register": "select model_register('second', 'embedder', 'scripted', 'x')",
    "model_unregister": "select model_unregister('second')",
    "memory_index_create": f"select memory_index_create('nobody', '{SCRIPTED_EMBEDDER}')",
    "embedding_replica_set": "select embedding_replica_set(true)",
    "model_fallback_set": f"select model_fallback_set('{SCRIPTED_GENERATOR}', null)",
}


@pytest.mark.parametrize("name", DDL)
def test_no_one_queues_behind_ddl_that_waits(
    name: str, connect: Connect, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    """Leaves a transaction open, so that an administrator's DDL waits for it and all others for the DDL."""
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    if name == "model_unregister":
        db.execute(DDL["model_register"])
    bob, admin = connect("bob"), connect("admin")
    with ThreadPoolExecutor(1) as pool:
        with bob.transaction():
            remember_all(bob, "one")
            bob.execute("select * from memory_recall('one')")
            if name == "model_fallback_set":
                db.execute("begin; lock table model in row exclusive mode")
            waiting = pool.submit(admin.execute, DDL[name])
            ana.execute("set statement_timeout = '2s'")
            for _ in range(20):
                remember_all(ana, "Rex is a beagle.")
                assert ana.execute("select from memory_recall('beagle')").rowcount > 0
            assert not waiting.done()
        db.execute("rollback")
        waiting.result(10)


def test_ddl_that_waits_gives_up(connect: Connect, db: psycopg.Connection) -> None:
    """Leaves a transaction open for long."""
    bob, admin = connect("bob"), connect("admin")
    with bob.transaction():
        remember_all(bob, "one")
        with fails("55P03") as caught:
            admin.execute(DDL["model_register"])
    assert "another transaction uses the memories" in str(caught.value)
    admin.execute(DDL["model_register"])


def test_all_ddl_locks_briefly(db: psycopg.Connection) -> None:
    """Waits with a function that changes or locks a common table in another way."""
    functions = db.execute(
        r"""select p.oid::regproc::text from pg_proc p
            where p.pronamespace::regnamespace::text ~ 'mindful$' and p.prosrc !~ '_mindful\.lock_briefly'
                and p.prosrc ~* '\m(create|alter|drop|lock|reindex|truncate) (unique )?(table|index|trigger|policy)\M'
            order by 1"""
    ).fetchall()
    # Those of an attached table change that table, the others are for installation alone or called with the lock held.
    assert [name for (name,) in functions] == [
        "_mindful.attachment_trigger_create",
        "_mindful.model_deleted",
        "_mindful.statistics_remove",
        "memory_detach",
    ]
