"""A restored database holds the same objects and rows, no model ran to make it, and life goes on in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from support.cluster import Cluster
from support.models import EMBEDDER, SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR
from support.programs import program, run
from support.query import one
from support.rare import insert_rare
from support.snapshot import differences, rows_of, snapshot
from support.training import enter_adapter

COUNTED = {"PGOPTIONS": "-c track_functions=all"}


def calls(db: psycopg.Connection) -> dict[str, int]:
    """How often functions were called in sessions that counted it; a session reports when it ends."""
    others = """select from pg_stat_activity
        where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()"""
    while db.execute(others).fetchone() is not None:
        time.sleep(0.05)
    found: list[tuple[str, int]] = db.execute("select funcname, calls from pg_stat_user_functions").fetchall()
    return dict(found)


def fill(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    """Put rows into every table."""
    db.execute(f"create schema shop authorization {ana.info.user}")
    ana.execute("create table shop.ticket (id integer primary key, subject text, body text)")
    ana.execute("insert into shop.ticket values (1, 'Printer', 'Floor 3 has no toner.')")
    assert one(ana, "select memory_attach('shop.ticket', 'subject || '': '' || body')") == 1
    ana.execute("insert into shop.ticket values (2, 'Coffee', 'The machine leaks.')")
    ana.execute('select memory_insert(\'Rex is my dog, he says "woof".\', metadata => \'{"topic": "dog"}\')')
    db.execute("select model_default_set(%s, force => true)", (SCRIPTED_EMBEDDER,))
    ana.execute("select memory_insert('Paris is rainy.')")
    db.execute("select model_default_set(%s, force => true)", (EMBEDDER,))
    insert_rare(ana)
    message = one(
        ana,
        "select message_id from llm_chat_detail('What is the capital of France?', model => %s)",
        SCRIPTED_GENERATOR,
    )
    ana.execute("select self_review(%s, %s)", (message, SCRIPTED_GENERATOR))
    ana.execute("select answer_label(%s, true)", (message,))
    gold = '[{"question": "What is the capital of France?", "answers": ["Paris"]}]'
    ana.execute("select gold_evaluate(%s, model => %s)", (gold, SCRIPTED_GENERATOR))
    ana.execute("select confidence_tune(%s)", (SCRIPTED_GENERATOR,))
    known = '{"question": "What is the capital of France?", "answers": ["%s"]}'
    asked = f"[{', '.join(known % city for city in ('Paris', 'Rome') * 20)}]"
    db.execute("call mindful.model_calibrate(%s, %s, 0)", (SCRIPTED_GENERATOR, asked))
    ana.execute("select setting_set('model_slot_wait_ms', '5000')")
    ana.execute("insert into memory_access (id) select min(id) from memory")
    ana.execute("select memory_link_insert(min(id), max(id), 'about') from memory")
    tickets = (
        "select 'Ticket ' || n, (array['low', 'high'])[n % 2 + 1] from pg_catalog.generate_series(1, 10) n"
    )
    ana.execute("select classifier_train('priority', %s)", (tickets,))
    ana.execute(
        "insert into attachment_tenant (relation, row_tenant) select relation, 'customer-7' from attachment"
    )
    ana.execute("select memory_evidence_insert(max(id), min(id), 'Floor 3') from memory")
    ana.execute("""select memory_forget(filter => '{"content": "what nobody said"}')""")
    ana.execute("select memory_insert('Anna Miller lives in Boston.', 'document')")
    ana.execute("select memory_consolidate()")
    ana.execute("create function shop.price(item text) returns integer language sql as 'select 7'")
    ana.execute("select tool_register('price', 'shop.price(text)', 'Tells the price of an item.')")
    ana.execute("select _mindful.memory_repeat(min(id)) from memory")
    db.execute("select key_create('notebook', 'customer-7')")
    db.execute("select training_configure(%s, 'chat')", (SCRIPTED_GENERATOR,))
    ana.execute("select setting_set('training_consent', 'true')")
    run = one(ana, 'select id from replay_run(%s, \'{"level": "information"}\')', SCRIPTED_GENERATOR)
    training = one(ana, "select _mindful.training_start(%s, _mindful.replay_hash(%s))", run, run)
    enter_adapter(db, "tuned", SCRIPTED_GENERATOR, {ana.info.user: training})
    rows = rows_of(db)
    assert [table for table, found in rows.items() if not found] == []


def go_on(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    """Remember, talk, review and attach some more; every identity goes on where it was."""
    before = rows_of(db)
    (session,) = {row["session_id"] for row in before["session"]}
    new = one(ana, "select memory_insert('Tom is my cat.')")
    message = one(ana, "select message_insert(%s, 'user', 'What is the capital of France?')", session)
    highest = max(row["id"] for row in before["memory"])
    assert [new, message] == [highest + 1, highest + 2]
    assert one(ana, "select turn from memory where id = %s", message) == 3
    assert one(ana, "select content from memory_recall('the pet called Tom')") == "Tom is my cat."
    assert (
        one(ana, "select content from memory_recall('the pet called Rex')")
        == 'Rex is my dog, he says "woof".'
    )
    reply = one(
        ana, "select message_id from llm_chat_detail(null, %s, model => %s)", session, SCRIPTED_GENERATOR
    )
    ana.execute("select self_review(%s, %s)", (reply, SCRIPTED_GENERATOR))
    ana.execute("select answer_label(%s, false)", (reply,))
    ana.execute("insert into shop.ticket values (3, 'Window', 'It does not close.')")
    ana.execute("delete from shop.ticket where id = 1")
    assert ana.execute(
        "select m.source_key, m.content, vector_dims(e.embedding) from memory m"
        " join memory_embedding_all_minilm_l6_v2 e using (tenant, id) where source = 'shop.ticket' order by 1"
    ).fetchall() == [("2", "Coffee: The machine leaks.", 384), ("3", "Window: It does not close.", 384)]
    after = rows_of(db)
    for table in ("generation", "review", "decision", "outcome"):
        assert len(after[table]) == len(before[table]) + 1
        assert max(row["id"] for row in after[table]) == max(row["id"] for row in before[table]) + 1


@pytest.fixture(scope="module")
def filled(cluster: Cluster, template: str, roles: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """A database that has rows in every table, which tests only read, and the role of ana."""
    with cluster.database(template) as name:
        with cluster.connect(name) as db, cluster.connect(name, roles["ana"]) as ana:
            fill(db, ana)
        yield name, roles["ana"]


@pytest.mark.parametrize("form", ["plain", "custom"])
def test_a_restored_database_is_the_same_and_goes_on(
    form: str,
    cluster: Cluster,
    filled: tuple[str, str],
    new_database: Callable[[], str],
    tmp_path: Path,
) -> None:
    origin, user = filled
    dump, name = str(tmp_path / "dump"), new_database()
    target = cluster.dsn(name)
    with cluster.connect(origin) as db, cluster.connect(name) as restored:
        run(program(db, "pg_dump"), f"--dbname={cluster.dsn(origin)}", f"--format={form}", f"--file={dump}")
        if form == "plain":
            psql = [program(db, "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]
            run(*psql, f"--dbname={target}", f"--file={dump}", environment=COUNTED)
        else:
            run(program(db, "pg_restore"), "--exit-on-error", f"--dbname={target}", dump, environment=COUNTED)
        assert [
            name
            for name in calls(restored)
            if name in ("memory_embed", "memory_index", "llm_embed") or name.startswith("remember_")
        ] == []
        assert differences(snapshot(restored), snapshot(db)) == []
        assert rows_of(restored) == rows_of(db)
        with cluster.connect(name, user) as ana_restored:
            go_on(restored, ana_restored)


def test_calls_of_triggers_would_be_counted(dsn: str) -> None:
    with psycopg.connect(dsn, options="-c track_functions=all", autocommit=True) as connection:
        connection.execute("select memory_insert('Rex is my dog.')")
    with psycopg.connect(
        dsn, autocommit=True
    ) as connection:  # a transaction would look at one snapshot for ever
        counted = calls(connection)
    assert (counted["memory_embed"], counted["memory_index"]) == (1, 1)
