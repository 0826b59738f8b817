"""Forgetting is whole or not at all, and of one's own alone."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import Connect, fails, one
from support.clock import within
from support.forgetting import drawn, forget, receipt, talk
from support.memories import contents, remember

SECRET = "My PIN is 9821."


def everything(db: psycopg.Connection, *leave_out: str) -> dict[str, object]:
    tables = db.execute(
        "select relname from pg_class where relnamespace = 'mindful'::regnamespace and relkind = 'r'"
    ).fetchall()
    return {
        table: db.execute(f"select to_jsonb(t) from mindful.{table} t order by t::text").fetchall()
        for (table,) in tables
        if table not in leave_out
    }


# All or nothing.


def test_a_dry_run_changes_nothing(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    said = talk(ana, SECRET, "Your PIN is 9821.")[0]
    drawn(ana, "Ana has a PIN.", said)
    before = everything(db)
    counts = forget(ana, "array[%s], dry_run => true", said)
    assert everything(db) == before
    assert one(
        ana, "select bool_and(receipt_id is null) from memory_forget(array[%s], dry_run => true)", said
    )
    assert forget(ana, "array[%s]", said) == counts


def test_nothing_is_drawn_from_what_is_being_forgotten(connect: Connect) -> None:
    first, second = connect("ana"), connect("ana")
    said = talk(first, SECRET)[0]
    fact = remember(first, "Ana has a PIN.")
    with ThreadPoolExecutor() as pool:
        with first.transaction():
            forget(first, "array[%s]", said)
            waiting = pool.submit(
                second.execute, "select memory_evidence_insert(%s, %s, 'PIN')", (fact, said)
            )
            while not one(first, "select count(*) from pg_locks where not granted"):
                assert not waiting.done()
        with fails("42704", hint="memory_list"):
            waiting.result()
    assert contents(first) == ["Ana has a PIN."]


def test_a_cancelled_forgetting_forgets_nothing(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute("set row_security = off")  # no model is to embed these
    db.execute(
        """insert into mindful.memory (tenant, content)
           select %s, 'Number ' || n || ' of many things' from generate_series(1, 3000) n""",
        (ana.info.user,),
    )
    ana.execute("set statement_timeout = '150ms'")
    for _ in within(0.6):
        with fails("57014", hint=None):
            ana.execute("select memory_forget(everything => true)")
    ana.execute("reset statement_timeout")
    assert one(ana, "select count(*) from memory") == 3000
    assert one(ana, "select count(*) from forget_receipt") == 0
    assert forget(ana, "everything => true")["memory", "deleted"] == 3000


@pytest.mark.parametrize(
    ("call", "sqlstate"),
    [
        ("memory_forget()", "22023"),
        ("memory_forget(null, everything => null)", "22023"),
        ("memory_forget('{1}', everything => true)", "22023"),
        ("memory_forget('{1}', filter => '{}')", "22023"),
        ("memory_forget('{0}')", "42704"),
        ("memory_forget('{1,null}')", "22004"),
        ("memory_forget(session_id => gen_random_uuid())", "42704"),
        ("memory_forget(filter => '{}')", "22023"),
        ("memory_forget(filter => '[]')", "22023"),
        ("memory_forget(filter => 'null')", "22023"),
        ('memory_forget(filter => \'{"kinds": "fact"}\')', "22023"),
        ('memory_forget(filter => \'{"since": "soon"}\')', "22023"),
        ("memory_forget(filter => '{\"metadata\": 1}')", "22023"),
        ("memory_forget_check()", "22023"),
        ("memory_forget_check(1, '{1}')", "22023"),
        ("memory_forget_check(1)", "42704"),
    ],
)
@pytest.mark.shares
def test_what_is_not_clear_is_refused(ana: psycopg.Connection, call: str, sqlstate: str) -> None:
    assert contents(ana) or remember(ana, SECRET)
    with fails(sqlstate):
        ana.execute(f"select {call}")
    assert contents(ana) == [SECRET]
    assert one(ana, "select count(*) from forget_receipt") == 0


# Others.


def test_nobody_forgets_for_another(
    ana: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    said = talk(ana, SECRET)[0]
    remember(ana, "I like tea.", source="manual", source_key="1")
    forget(ana, "array[%s]", remember(ana, "Gone."))
    session_id = one(ana, "select session_id from session")
    mine = remember(bob, "I like coffee.")
    before = everything(db, "forget_receipt")
    for call in (
        f"memory_forget('{{{said}}}')",
        f"memory_forget('{{{mine},{said}}}')",
        f"memory_forget('{{{said}}}', dry_run => true)",
        f"memory_forget(session_id => '{session_id}')",
        f"memory_forget_check({receipt(ana)})",
    ):
        with fails("42704"):
            bob.execute(f"select {call}")
    assert (
        bob.execute("select * from memory_forget_check(ids => array[%s::bigint])", (said,)).fetchall() == []
    )
    for filter_ in ({"source": "manual"}, {"content": "PIN"}, {"kind": "message"}):
        assert forget(bob, "filter => %s", Jsonb(filter_)) == {
            ("memory", "deleted"): 0,
            ("memory_term", "deleted"): 0,
        }
    with fails("42501", hint=None):
        bob.execute(
            "insert into forget_receipt (tenant, scope, memory_ids, hashes, counts, mentions)"
            f" values ('{ana.info.user}', 'ids', '{{}}', '{{}}', '[]', '[]')"
        )
    assert everything(db, "forget_receipt") == before
    forget(bob, "everything => true")
    assert contents(ana) == [SECRET, "I like tea."]


@pytest.mark.parametrize("role", ["reader", "admin"])
def test_who_is_no_user_forgets_nothing(connect: Connect, ana: psycopg.Connection, role: str) -> None:
    said = talk(ana, SECRET)[0]
    connection = connect(role)
    connection.execute(f"set mindful.tenant = '{ana.info.user}'")
    for call in (
        f"memory_forget('{{{said}}}')",
        "memory_forget(everything => true)",
        "memory_forget_check(1)",
        "memory_prune(max_count => 0)",
    ):
        with fails("42501", hint=None):
            connection.execute(f"select {call}")
    assert contents(ana) == [SECRET]


def test_an_application_forgets_for_whom_it_serves(connect: Connect) -> None:
    application = connect("application")
    for customer in ("customer-7", "customer-8"):
        application.execute(f"set mindful.tenant = '{customer}'")
        remember(application, f"The order of {customer} is late.")
    forget(application, "everything => true")
    assert contents(application) == []
    application.execute("set mindful.tenant = 'customer-7'")
    assert len(contents(application)) == 1
