"""Tables of applications whose rows are remembered."""

import re
from collections.abc import Iterator

import psycopg
import pytest
from support import Connect, fails


@pytest.fixture
def owner(db: psycopg.Connection, connect: Connect) -> Iterator[psycopg.Connection]:
    """Ana, owner of a table of tickets that bob may write to."""
    ana, bob = connect("ana"), connect("bob")
    db.execute(f'create schema shop authorization "{ana.info.user}"')
    ana.execute(
        "create table shop.ticket (id int, lang text default 'en', subject text, body text, primary key (id, lang))"
    )
    ana.execute(f'grant usage on schema shop to "{bob.info.user}"')
    ana.execute(f'grant all on shop.ticket to "{bob.info.user}"')
    yield ana
    db.execute("drop schema shop cascade")


def attach(owner: psycopg.Connection) -> int:
    row = owner.execute("select memory_attach('shop.ticket', $$subject || ': ' || body$$)").fetchone()
    assert row is not None
    return int(row[0])


def memories(owner: psycopg.Connection) -> dict[str, str]:
    return dict(
        owner.execute("select source_key, content from memory where source = 'shop.ticket'").fetchall()
    )


@pytest.mark.smoke
def test_rows_are_remembered_embedded_and_recalled(owner: psycopg.Connection) -> None:
    owner.execute("insert into shop.ticket values (1, 'en', 'Printer', 'no toner on floor 3')")
    assert attach(owner) == 1
    owner.execute(
        "insert into shop.ticket select i, 'en', 'Ticket', 'number ' || i from generate_series(2, 40) i"
    )
    assert memories(owner).keys() == {f"{{{i},en}}" for i in range(1, 41)}
    row = owner.execute("select content, similarity from memory_recall('out of ink', 1)").fetchone()
    assert row is not None
    assert row[0] == "Printer: no toner on floor 3"
    assert row[1] is not None


def test_memories_follow_their_rows(owner: psycopg.Connection) -> None:
    attach(owner)
    owner.execute(
        "insert into shop.ticket values (1, 'en', 'a', 'one'), (2, 'en', 'b', 'two'), (3, 'en', 'c', null)"
    )
    assert memories(owner) == {"{1,en}": "a: one", "{2,en}": "b: two"}
    owner.execute("update shop.ticket set body = 'three' where id = 3")
    owner.execute("update shop.ticket set body = null where id = 2")
    owner.execute("update shop.ticket set id = 10 where id = 1")
    assert memories(owner) == {"{10,en}": "a: one", "{3,en}": "c: three"}
    owner.execute("delete from shop.ticket where id = 3")
    assert memories(owner) == {"{10,en}": "a: one"}
    owner.execute("truncate shop.ticket")
    assert memories(owner) == {}


def test_a_statement_is_one_batch(owner: psycopg.Connection, db: psycopg.Connection) -> None:
    attach(owner)
    before = owner.execute("select pg_current_xact_id_if_assigned()").fetchone()
    assert before == (None,)
    with owner.transaction():
        owner.execute(
            "insert into shop.ticket select i, 'en', 'Ticket', 'text ' || i from generate_series(1, 50) i"
        )
        row = owner.execute(
            "select count(distinct xmin::text) from memory_embedding_all_minilm_l6_v2"
        ).fetchone()
    assert row == (1,)


def test_rows_that_others_write_are_the_owners_memories(
    owner: psycopg.Connection, bob: psycopg.Connection
) -> None:
    attach(owner)
    bob.execute("insert into shop.ticket values (1, 'en', 'From bob', 'hello')")
    assert memories(owner) == {"{1,en}": "From bob: hello"}
    assert bob.execute("select count(*) from memory").fetchone() == (0,)
    bob.execute("delete from shop.ticket")
    assert memories(owner) == {}


def test_a_writer_cannot_choose_the_tenant(
    db: psycopg.Connection, owner: psycopg.Connection, bob: psycopg.Connection
) -> None:
    db.execute(f'grant mindful_application to "{owner.info.user}"')
    try:
        with fails("55000"):
            attach(owner)
        owner.execute("select set_config('mindful.tenant', current_user, false)")
        attach(owner)
        bob.execute("set mindful.tenant = 'victim'")
        bob.execute("insert into shop.ticket values (1, 'en', 'a', 'b')")
        assert db.execute("select distinct tenant from memory").fetchall() == [(owner.info.user,)]
    finally:
        db.execute(f'revoke mindful_application from "{owner.info.user}"')


def test_a_failed_embedding_leaves_no_row(
    owner: psycopg.Connection, admin: psycopg.Connection, db: psycopg.Connection
) -> None:
    attach(owner)
    db.execute("update model set source = '/nowhere.gguf' where name = 'all-minilm-l6-v2'")
    with fails("58P01"):
        owner.execute("insert into shop.ticket values (1, 'en', 'a', 'b')")
    assert owner.execute("select count(*) from shop.ticket").fetchone() == (0,)


def test_detaching_undoes_it(owner: psycopg.Connection) -> None:
    owner.execute("insert into shop.ticket values (1, 'en', 'a', 'b')")
    attach(owner)
    assert owner.execute("select memory_detach('shop.ticket')").fetchone() == (1,)
    owner.execute("insert into shop.ticket values (2, 'en', 'a', 'b')")
    assert memories(owner) == {}
    assert owner.execute(
        "select count(*) from pg_trigger where tgrelid = 'shop.ticket'::regclass"
    ).fetchone() == (0,)
    assert owner.execute(
        "select count(*) from pg_proc where pronamespace = 'shop'::regnamespace"
    ).fetchone() == (0,)
    assert attach(owner) == 2


def test_a_renamed_table_stays_attached(owner: psycopg.Connection) -> None:
    attach(owner)
    owner.execute("alter table shop.ticket rename to case_file")
    owner.execute("insert into shop.case_file values (1, 'en', 'a', 'b')")
    assert memories(owner) == {"{1,en}": "a: b"}
    assert owner.execute("select memory_detach('shop.case_file')").fetchone() == (1,)


def test_a_dropped_tables_memories_go_with_the_next_attachment(owner: psycopg.Connection) -> None:
    attach(owner)
    owner.execute("insert into shop.ticket values (1, 'en', 'a', 'b')")
    owner.execute("drop table shop.ticket")
    owner.execute("create table shop.ticket (id int primary key, subject text, body text)")
    assert attach(owner) == 0
    assert memories(owner) == {}


def test_a_dropped_table_is_detached_by_its_row(owner: psycopg.Connection) -> None:
    attach(owner)
    owner.execute("insert into shop.ticket values (1, 'en', 'a', 'b')")
    owner.execute("drop table shop.ticket")
    detached = owner.execute("select memory_detach(relation) from attachment where source = 'shop.ticket'")
    assert detached.fetchall() == [(1,)]
    assert memories(owner) == {}
    assert owner.execute("select to_regproc('shop.remember_' || md5('shop.ticket'))").fetchone() == (None,)


def test_without_the_extension_a_table_is_as_it_was(
    owner: psycopg.Connection, db: psycopg.Connection
) -> None:
    attach(owner)
    db.execute("set client_min_messages = warning")
    db.execute("drop extension mindful cascade")
    owner.execute("insert into shop.ticket values (1, 'en', 'a', 'b')")
    assert db.execute(
        "select count(*) from pg_proc where pronamespace = 'shop'::regnamespace"
    ).fetchone() == (0,)


@pytest.mark.parametrize(
    ("call", "sqlstate", "hint"),
    [
        ("memory_attach('shop.nothing', 'body')", "42P01", None),
        ("memory_attach('shop.ticket', 'nothing')", "42703", "columns of shop.ticket"),
        ("memory_attach('shop.ticket', 'body; select 1')", "42601", "expression"),
        ("memory_attach('shop.ticket', 'body) is null; select (1')", "42601", "expression"),
        ("memory_attach('shop.ticket', 'max(body)')", "42803", "expression"),
        ("memory_attach('shop.ticket', 'unnest(array[body])')", "0A000", "expression"),
        ("memory_attach('shop.ticket', 'ctid')", "42703", "expression"),
        ("memory_attach('shop.ticket', 'body', metadata => 'lang')", "42804", "jsonb_build_object"),
        ("memory_attach('shop.ticket', 'body', metadata => '''x''')", "22P02", "expression"),
        ("memory_attach('shop.ticket', '')", "22023", r"\w"),
        ("memory_attach('shop.ticket', null)", "22004", r"\w"),
        ("memory_attach(null, 'body')", "22004", r"\w"),
        ("memory_attach('shop.ticket', 'body', 'never')", "22023", r"\w"),
        ("memory_attach('shop.keyless', 'body')", "42P16", r"\w"),
        ("memory_attach('shop.seen', 'body')", "42809", r"\w"),
        ("memory_attach('mindful.memory', 'content')", "42809", r"\w"),
        ("memory_attach('pg_catalog.pg_class', 'relname')", "42809", r"\w"),
        ("memory_attach('shop.log_2026', 'body')", "42809", "trigger of your own"),
        ("memory_attach('shop.child', 'body')", "42809", "trigger of your own"),
        ("memory_attach('shop.parent', 'body')", "42809", "trigger of your own"),
        ("memory_detach('shop.ticket')", "42704", r"\w"),
    ],
)
@pytest.mark.shares
def test_bad_arguments_are_refused_and_nothing_is_left(
    owner: psycopg.Connection, call: str, sqlstate: str, hint: str | None
) -> None:
    owner.execute("create table shop.keyless (body text)")
    owner.execute("create view shop.seen as select * from shop.ticket")
    owner.execute(
        """create table shop.log (year int primary key, body text) partition by list (year);
        create table shop.log_2026 partition of shop.log for values in (2026);
        create table shop.parent (id int primary key, body text);
        create table shop.child (primary key (id)) inherits (shop.parent)"""
    )
    with fails(sqlstate, hint):
        owner.execute(f"select {call}")
    assert owner.execute("select count(*) from attachment").fetchone() == (0,)
    assert owner.execute("select count(*) from pg_trigger where tgname like 'remember%'").fetchone() == (0,)


@pytest.mark.parametrize(
    "metadata", ["j", "jb", "'{\"a\": 1}'", "jsonb_build_object(id, 1)", "jb -- of the row"]
)
def test_metadata_may_be_of_either_type_of_json(owner: psycopg.Connection, metadata: str) -> None:
    owner.execute("create table shop.event (id int primary key, body text, j json, jb jsonb)")
    owner.execute(
        "select memory_attach('shop.event', $$'100%% ' || id %% 3 || body$$, metadata => %s)", (metadata,)
    )
    owner.execute("insert into shop.event values (4, ' a', '{}', '{}')")
    assert owner.execute("select content from memory").fetchall() == [("100% 1 a",)]


def test_a_failing_expression_names_its_table(owner: psycopg.Connection) -> None:
    owner.execute("create table shop.event (id int primary key, body text)")
    owner.execute("select memory_attach('shop.event', $$(10 / (id - 2))::text || body$$)")
    named = r"the attached table shop\.event cannot be read: "
    detach = r"memory_detach\('shop\.event'\)"
    with pytest.raises(psycopg.errors.DivisionByZero, match=named) as failed:
        owner.execute("insert into shop.event values (1, 'a'), (2, 'b')")
    assert re.search(detach, failed.value.diag.message_hint or "")
    owner.execute("insert into shop.event values (1, 'a')")
    with pytest.raises(psycopg.errors.DivisionByZero, match=named):
        owner.execute("update shop.event set id = 2")
    owner.execute("alter table shop.event rename body to words")
    for statement in (b"insert into shop.event values (3, 'c')", b"delete from shop.event"):
        with pytest.raises(psycopg.errors.UndefinedColumn, match=named) as renamed:
            owner.execute(statement)
        assert re.search(detach, renamed.value.diag.message_hint or "")
        assert "QUERY" not in str(renamed.value)
    assert owner.execute("select memory_detach('shop.event')").fetchone() == (1,)


def test_a_key_reads_the_same_whatever_the_session_is_set_to(owner: psycopg.Connection) -> None:
    owner.execute("create table shop.event (at timestamptz, kind text, body text, primary key (at, kind))")
    owner.execute("select memory_attach('shop.event', 'body')")
    owner.execute("insert into shop.event values (now(), 'a,b', 'one'), (now(), 'a', 'two')")
    owner.execute("set timezone = 'Asia/Tokyo'")
    owner.execute("set datestyle = 'German'")
    owner.execute("delete from shop.event")
    assert owner.execute("select count(*) from memory").fetchone() == (0,)


def test_keys_with_separators_stay_apart(owner: psycopg.Connection) -> None:
    owner.execute("create table shop.pair (a text, b text, body text, primary key (a, b))")
    owner.execute("select memory_attach('shop.pair', 'body')")
    owner.execute("insert into shop.pair values ('x,y', 'z', 'one'), ('x', 'y,z', 'two')")
    assert owner.execute("select count(*) from memory").fetchone() == (2,)


def test_tables_with_long_names_alike_do_not_meet(owner: psycopg.Connection) -> None:
    names = [f"{'a_very_long_table_name_' * 2}{number}" for number in (1, 2)]
    for name in names:
        owner.execute(f"create table shop.{name} (id int primary key, body text)")
        owner.execute(f"select memory_attach('shop.{name}', 'body')")
    for name in names:
        owner.execute(f"insert into shop.{name} values (1, '{name}')")
    rows = owner.execute("select source, content from memory order by 1").fetchall()
    assert rows == [(f"shop.{name}", name) for name in names]


def test_more_rows_than_a_batch_are_all_remembered(owner: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute("select model_default_set('scripted-embedder')")
    owner.execute("insert into shop.ticket select i, 'en', 'a', 'b' || i from generate_series(1, 2100) i")
    assert attach(owner) == 2100
    owner.execute("update shop.ticket set body = 'c' || id")
    row = owner.execute("select count(distinct content) from memory where content like 'a: c%'").fetchone()
    assert row == (2100,)


def test_a_column_may_have_any_name(owner: psycopg.Connection) -> None:
    owner.execute('create table shop.odd (id int primary key, keys text, contents text, "a b" text)')
    owner.execute("select memory_attach('shop.odd', $$keys || contents || \"a b\"$$)")
    owner.execute("insert into shop.odd values (1, 'x', 'y', 'z')")
    assert owner.execute("select content from memory").fetchall() == [("xyz",)]


def test_only_the_owner_attaches(owner: psycopg.Connection, bob: psycopg.Connection) -> None:
    with fails("42501"):
        bob.execute("select memory_attach('shop.ticket', 'body')")
    attach(owner)
    with fails("42710"):
        attach(owner)


LAST = "The spare key of the archive hangs behind the blue door."


def long_body(words: int) -> str:
    """A text about many things whose last sentence is about something else."""
    sentences = [
        f"In week {at} the team counted {at * 7} boxes of paper in hall {at % 9}."
        for at in range(words // 13)
    ]
    return " ".join([*sentences, LAST])


def test_the_end_of_a_long_row_is_found(owner: psycopg.Connection) -> None:
    attach(owner)
    owner.execute("insert into shop.ticket values (1, 'en', 'Report', %s)", (long_body(2500),))
    owner.execute(
        "insert into shop.ticket select i, 'en', 'Ticket', 'Door ' || i || ' is blue.' from generate_series(2, 30) i"
    )
    rows = owner.execute(
        """select content, similarity, source_key, metadata
           from memory_recall('Where is the extra key of the archive?', 3)"""
    ).fetchall()
    content, similarity, key, metadata = rows[0]
    assert LAST in content
    assert similarity > 0.3
    assert key == "{1,en}"
    assert metadata["part"] == metadata["parts"] > 10
    whole = owner.execute(
        "select string_agg(content, ' ' order by (metadata ->> 'part')::int) from memory where metadata ? 'part'"
    ).fetchone()
    assert whole is not None
    assert all(f"In week {at} " in whole[0] for at in range(2500 // 13))


def test_parts_follow_their_row(owner: psycopg.Connection) -> None:
    assert attach(owner) == 0
    owner.execute(
        "insert into shop.ticket values (1, 'en', 'a', %s), (2, 'en', 'b', 'two')", (long_body(1500),)
    )
    assert len(memories(owner)) > 5
    owner.execute("update shop.ticket set body = 'one' where id = 1")
    assert memories(owner) == {"{1,en}": "a: one", "{2,en}": "b: two"}
    assert owner.execute("select distinct metadata from memory").fetchall() == [({},)]
    owner.execute("update shop.ticket set body = %s where id = 1", (long_body(1500),))
    owner.execute("update shop.ticket set id = 3 where id = 1")
    assert {key.split("\x1f")[0] for key in memories(owner)} == {"{3,en}", "{2,en}"}
    owner.execute("delete from shop.ticket where id = 3")
    assert memories(owner) == {"{2,en}": "b: two"}
    owner.execute("update shop.ticket set body = %s", (long_body(1500),))
    assert owner.execute("select memory_detach('shop.ticket') > 5").fetchone() == (True,)
    assert memories(owner) == {}


def test_metadata_come_from_the_row_and_are_filtered_by(owner: psycopg.Connection) -> None:
    owner.execute("insert into shop.ticket values (1, 'en', 'Printer', 'no toner')")
    owner.execute(
        """select memory_attach('shop.ticket', 'subject || body',
               metadata => $$jsonb_build_object('lang', lang, 'number', id)$$)"""
    )
    owner.execute(
        "insert into shop.ticket values (2, 'de', 'Drucker', 'no toner'), (7, 'en', 'Printer', 'no paper')"
    )
    query = (
        "select source_key from memory_recall('printer toner', 9, metadata => %s, source => %s) order by 1"
    )

    def keys(condition: str, source: str | None = "shop.ticket") -> list[str]:
        return [row[0] for row in owner.execute(query, (condition, source))]

    assert keys('{"lang": "en"}') == ["{1,en}", "{7,en}"]
    assert keys('{"number": {"$gt": 1, "$lte": 7}}') == ["{2,de}", "{7,en}"]
    assert keys("{}", "shop.other") == []
    owner.execute("update shop.ticket set lang = 'fr' where id = 2")
    assert keys('{"lang": "fr"}') == ["{2,fr}"]
    with fails("22023"):
        owner.execute(
            "select memory_detach('shop.ticket'), memory_attach('shop.ticket', 'subject', metadata => '''1''')"
        )


def test_rows_have_the_tenant_of_their_expression(db: psycopg.Connection, connect: Connect) -> None:
    application = connect("application")
    user = application.info.user
    db.execute(f'create schema shop authorization "{user}"')
    application.execute("set mindful.tenant = 'shop'")
    application.execute("create table shop.ticket (id int primary key, customer text, body text)")
    application.execute(
        "insert into shop.ticket values (1, 'c1', 'The printer has no toner.'), (2, null, 'nobody')"
    )
    assert application.execute(
        "select memory_attach('shop.ticket', 'body', tenant => 'customer')"
    ).fetchone() == (1,)
    application.execute("insert into shop.ticket values (3, 'c2', 'The coffee machine leaks.')")

    def seen(tenant: str) -> list[str]:
        application.execute("select set_config('mindful.tenant', %s, false)", (tenant,))
        found = [row[0] for row in application.execute("select content from memory order by source_key")]
        application.execute("set mindful.tenant = 'shop'")
        return found

    assert [seen(name) for name in ("shop", "c1", "c2")] == [
        [],
        ["The printer has no toner."],
        ["The coffee machine leaks."],
    ]
    application.execute("update shop.ticket set customer = 'c2' where id = 1")
    assert [len(seen(name)) for name in ("c1", "c2")] == [0, 2]
    application.execute("delete from shop.ticket where id = 3")
    assert seen("c2") == ["The printer has no toner."]
    assert application.execute("select memory_detach('shop.ticket')").fetchone() == (1,)
    assert seen("c2") == []
    application.execute("select memory_attach('shop.ticket', 'body', tenant => 'customer')")
    application.execute("truncate shop.ticket")
    assert seen("c2") == []
    db.execute("drop schema shop cascade")


def test_only_an_application_chooses_tenants(owner: psycopg.Connection) -> None:
    with fails("42501"):
        owner.execute("select memory_attach('shop.ticket', 'body', tenant => 'lang')")
