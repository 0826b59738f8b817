"""Attacks on what runs with the owner's rights: by settings that the caller chooses, and by rows that it reads."""

from __future__ import annotations

import psycopg
import pytest
from support import Connect, fails, one

SECRET = "The vault opens with 7788."

# The policies were applied when the statement began; the second row finds row_security off.
FORGE = """insert into mindful.setting (tenant, scope, key, value, changed_by)
    select {tenant}, '{scope}', 'generation_log', 'true'::jsonb, 'x'
    union all
    select case when set_config('row_security', 'off', true) = 'off' then {tenant} end,
        '{scope}', '{key}', '1', 'postgres'"""


def codes(text: str) -> str:
    """A text as plans show it: its bytes."""
    return " ".join(str(byte) for byte in text.encode())


def test_plans_of_functions_with_the_owners_rights(
    queueing: None, ana: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Reads the texts that workers embed in the plans that debug_print_plan sends to the caller."""
    ana.execute("select memory_insert(%s)", (SECRET,))
    sent: list[str] = []
    admin.add_notice_handler(lambda notice: sent.append(f"{notice.message_primary} {notice.message_detail}"))
    for name in ("parse", "rewritten", "plan"):
        admin.execute(f"set debug_print_{name} = on")
    admin.execute("set client_min_messages = log")
    assert one(admin, f"select '{SECRET}'::text || random()") != SECRET
    assert codes(SECRET) in " ".join("".join(sent).split())  # where it is looked for
    sent.clear()
    assert one(admin, "select (embedding_run()).embedded") == 1
    admin.execute("select retention_run()")
    shown = " ".join("".join(sent).split())
    assert codes("vault") not in shown
    assert codes(ana.info.user) not in shown


def test_functions_with_the_owners_rights_show_no_plans(db: psycopg.Connection) -> None:
    """Looks for a function with the owner's rights whose plans its caller can have shown."""
    assert (
        one(
            db,
            "select count(*) from pg_proc where pronamespace::regnamespace::text ~ 'mindful$' and prosecdef",
        )
        > 10
    )
    shown = db.execute(
        """select p.oid::regprocedure from pg_proc p
           where p.pronamespace::regnamespace::text ~ 'mindful$' and p.prosecdef and not coalesce(p.proconfig, '{}')
               @> '{debug_print_parse=off,debug_print_rewritten=off,debug_print_plan=off}'"""
    ).fetchall()
    assert shown == []


def test_plans_of_attached_tables(
    scripted: None, ana: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Reads columns that it may only update in the plans of an attached table's triggers."""
    db.execute(f"create schema shop authorization {ana.info.user}")
    ana.execute("create table shop.ticket (id integer primary key, done boolean, body text)")
    ana.execute("insert into shop.ticket values (1, false, %s)", (SECRET,))
    ana.execute("select memory_attach('shop.ticket', 'body || '' '' || done')")
    ana.execute(f"grant usage on schema shop to {bob.info.user}")
    ana.execute(f"grant update (done) on shop.ticket to {bob.info.user}")
    sent: list[str] = []
    bob.add_notice_handler(lambda notice: sent.append(f"{notice.message_primary} {notice.message_detail}"))
    bob.execute("set debug_print_plan = on")
    bob.execute("set client_min_messages = log")
    bob.execute("update shop.ticket set done = true")
    assert sent
    assert codes("vault") not in " ".join("".join(sent).split())
    assert one(ana, "select content from memory") == f"{SECRET} true"


def test_settings_forged_without_row_security(bob: psycopg.Connection) -> None:
    """Turns row_security off within a statement, to write a setting of another tenant, unchecked."""
    with fails("42501", hint=None):
        bob.execute(FORGE.format(tenant="current_user", scope="user", key="chat_tools").encode())
    assert one(bob, "select count(*) from setting") == 0


def test_retention_without_confirmation(ana: psycopg.Connection, admin: psycopg.Connection) -> None:
    """Turns row_security off within a statement, to set an unconfirmed retention for all tenants, as another tenant."""
    ana.execute("insert into memory (content, created_at) values (%s, '2020-01-01')", (SECRET,))
    with fails("42501", hint=None):
        admin.execute(FORGE.format(tenant="''", scope="global", key="retention_fact_days").encode())
    assert one(ana, "select count(*) from setting") == 0


def test_retention_without_triggers(
    scripted: None, ana: psycopg.Connection, admin: psycopg.Connection
) -> None:
    """Runs the retention of all with row_security off, so that no trigger takes a text's traces away."""
    ana.execute("insert into memory (content, created_at) values (%s, '2020-01-01')", (SECRET,))
    ana.execute("select setting_set('retention_fact_days', '1')")
    admin.execute("set row_security = off")
    admin.execute("select _mindful.retention_run_all()")
    assert one(ana, "select count(*) from memory") == 0
    assert one(ana, "select count(*) from memory_term") == 0


def test_deleting_without_triggers_behind_a_superusers_connection(
    scripted: None, db: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """Turns row_security off as a role that a superuser's connection set, so that no trigger fires."""
    bob.execute("select memory_insert('x y z zebra')")
    db.execute(f'set role "{bob.info.user}"'.encode())
    assert one(db, "select set_config('row_security', 'off', false)") == "off"
    assert one(db, "select _mindful.is_restore()") is False
    with fails("42501", hint=None):
        db.execute("insert into mindful.memory (content) values ('unseen')")
    db.execute("set row_security = on")
    with fails("42501", hint=None):
        db.execute(
            """insert into mindful.memory (content)
               select case when set_config('row_security', 'off', true) = 'off' then 'unseen word' end"""
        )
    db.execute("reset role")
    assert one(db, "select count(*) from mindful.memory") == 1


def test_deleting_without_triggers(scripted: None, bob: psycopg.Connection) -> None:
    """Turns row_security off until a statement's triggers are chosen, so that none fires."""
    bob.execute("select memory_insert('x y z zebra')")
    with fails("42501", hint=None):
        bob.execute(
            """with gone as (
                   insert into deletion (relation, keys)
                   select 'memory', jsonb_build_array(jsonb_build_object('id', id)) from memory
                   where set_config('row_security', 'off', true) = 'off'
                   returning id
               )
               select set_config('row_security', 'on', true) from (select count(*) from gone) g"""
        )
    assert one(bob, "select count(*) from memory") == 1
    bob.execute("select _mindful.memory_delete(array_agg(id)) from memory")
    assert one(bob, "select count(*) from memory") == 0
    assert one(bob, "select count(*) from memory_term") == 0


def test_triggers_that_row_security_turns_off(db: psycopg.Connection) -> None:
    """Looks for a trigger that any role can turn off by row_security."""
    conditions = db.execute(
        """select t.tgname, pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid
           where c.relnamespace = 'mindful'::regnamespace and pg_get_triggerdef(t.oid) ~ 'row_security'"""
    ).fetchall()
    assert len(conditions) > 10
    assert [name for name, definition in conditions if "_mindful.is_restore())" not in definition] == []


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ("outputs", """'{"facts": "many"}'"""),
        ("outputs", """'{"facts": 1e400, "contradicted": [1]}'"""),
        ("model", "(select string_agg(md5(i::text), '') from generate_series(1, 2000) i)"),
    ],
)
def test_a_run_that_ends_no_other(
    columns: str, values: str, ana: psycopg.Connection, bob: psycopg.Connection, reader: psycopg.Connection
) -> None:
    """Enters a run of its own whose figures fail the summary of all, and so the runs of others."""
    bob.execute(
        f"insert into consolidation (type, status, finished_at, {columns})"
        f" values ('extract', 'completed', now(), {values})".encode()
    )
    assert one(ana, "select status from memory_consolidate()") == "completed"
    assert one(reader, "select count(distinct tenant) from consolidation_summary") == 2


def test_a_tenant_whose_name_is_too_long_for_the_summary(connect: Connect, ana: psycopg.Connection) -> None:
    """Runs as a tenant whose name fits every table and not the summary of all."""
    application = connect("application")
    name = one(ana, "select left(string_agg(md5(i::text), ''), 2680) from generate_series(1, 90) i")
    application.execute("select set_config('mindful.tenant', %s, false)", (name,))
    application.execute(
        "insert into consolidation (type, status, finished_at) values ('extract', 'completed', now())"
    )
    assert one(ana, "select status from memory_consolidate()") == "completed"


def test_names_of_tenants(connect: Connect, bob: psycopg.Connection) -> None:
    """Asks by mindful.tenant whether there is a tenant of a name."""
    application = connect("application")
    application.execute("set mindful.tenant = 'customer-7'")
    application.execute("select setting_set('generation_log', 'true')")
    assert one(application, "select tenant from tenant_claim") == "customer-7"
    bob.execute("set mindful.tenant = 'customer-7'")
    assert bob.execute("select tenant from tenant_claim where tenant <> current_user").fetchall() == []
