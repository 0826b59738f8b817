"""Forgetting: what it reaches, what it leaves, and the proof."""

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, fails, one
from support.forgetting import drawn, forget, receipt, talk
from support.memories import contents, remember

SECRET = "My PIN is 9821."


def left(connection: psycopg.Connection, receipt_id: int | None = None) -> list[tuple[Any, ...]]:
    return connection.execute(
        "select relation, column_name, key, finding from memory_forget_check(%s)",
        (receipt_id or receipt(connection),),
    ).fetchall()


# What the catalog says.


def test_forgetting_reaches_every_table_that_refers_to_memories(db: psycopg.Connection) -> None:
    rows = db.execute(
        """select conrelid::regclass::text, conname, confdeltype::text, cardinality(conkey),
               exists (select from pg_index i where i.indrelid = conrelid
                   and (i.indkey::smallint[])[0:1] = conkey)
           from pg_constraint
           where contype = 'f' and confrelid in ('memory'::regclass, 'session'::regclass, 'generation'::regclass,
               'review'::regclass) and connamespace = 'mindful'::regnamespace"""
    ).fetchall()
    assert len(rows) > 8
    for relation, name, action, columns, is_indexed in rows:
        assert action in "cn", f"{relation}.{name} keeps what it refers to from being forgotten"
        assert columns == 2, f"{relation}.{name} is not (tenant, ...)"
        assert is_indexed, f"{relation}.{name} needs an index, or every row deleted reads the table"


def test_whatever_looks_like_a_memorys_id_is_known(db: psycopg.Connection) -> None:
    rows = db.execute(
        """select c.name, c.column_name
           from _mindful.tenant_columns() c
           join pg_attribute a on a.attrelid = c.relation and a.attnum = c.number
           where (c.column_name = 'id' and a.attidentity = '' or c.column_name ~ '(memory|message)_ids?$')
               and not exists (
                   select from _mindful.reference_columns() r
                   where r.relation = c.name and r.column_name = c.column_name
               )"""
    ).fetchall()
    # That an adapter was trained on what is forgotten must stay known: adapters_trained_on.
    assert rows == [("training_memory", "memory_id")]


def test_a_user_can_read_all_that_the_check_looks_at(ana: psycopg.Connection) -> None:
    assert (
        ana.execute(
            "select distinct name from _mindful.tenant_columns() where not has_table_privilege(relation, 'select')"
        ).fetchall()
        == []
    )


# What goes along.


@pytest.mark.smoke
def test_a_memory_goes_with_all_that_hangs_on_it(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    secret, other = remember(ana, SECRET), remember(ana, "I like tea.")
    ana.execute("select memory_link_insert(%s, %s, 'about')", (secret, other))
    ana.execute("insert into memory_access (id) values (%s)", (secret,))
    ana.execute("select memory_evidence_insert(%s, %s, 'tea')", (secret, other))
    before = forget(ana, "array[%s], dry_run => true", secret)
    counts = forget(ana, "array[%s]", secret)
    assert (
        counts
        == before
        == {
            ("memory", "deleted"): 1,
            ("memory_access", "deleted"): 1,
            ("memory_embedding_all_minilm_l6_v2", "deleted"): 1,
            ("memory_evidence", "deleted"): 1,
            ("memory_link", "deleted"): 1,
            ("memory_term", "deleted"): 2,
        }
    )
    assert contents(ana) == ["I like tea."]
    for table in ("memory_access", "memory_link", "memory_evidence"):
        assert one(db, f"select count(*) from mindful.{table}") == 0
    for table in ("memory_embedding_all_minilm_l6_v2", "memory_term"):
        assert db.execute(f"select distinct id from mindful.{table}").fetchall() == [(other,)]
    assert left(ana) == []


def test_a_receipt_holds_no_content(ana: psycopg.Connection) -> None:
    secret = remember(ana, SECRET)
    forget(ana, "array[%s]", secret)
    kept = str(ana.execute("select to_jsonb(r) from forget_receipt r").fetchall())
    for word in ("PIN", "pin", "9821"):
        assert word not in kept.replace(ana.info.user, "")
    assert one(ana, "select scope, forgotten_by, memory_ids, cardinality(hashes) from forget_receipt") == (
        "ids",
        ana.info.user,
        [secret],
        1,
    )
    for statement in ("delete from forget_receipt", "update forget_receipt set scope = 'ids'"):
        with fails("42501", hint=None):
            ana.execute(statement)


def test_facts_without_other_evidence_go(ana: psycopg.Connection) -> None:
    said, also = talk(ana, SECRET)[0], talk(ana, "I told you my PIN.")[0]
    only = drawn(ana, "Ana has the PIN 9821.", said)
    both = drawn(ana, "Ana has a PIN.", said, also)
    indirect = drawn(ana, "Ana's PIN has four digits.", only)
    unrelated = remember(ana, "Ana drinks tea.")
    counts = forget(ana, "array[%s]", said)
    assert counts["memory", "deleted"] == 3
    assert counts["memory_evidence", "deleted"] == 3
    assert {row[0] for row in ana.execute("select id from memory")} == {also, both, unrelated}
    assert ana.execute("select id, source_id from memory_evidence").fetchall() == [(both, also)]
    assert indirect not in one(ana, "select array_agg(id) from memory")
    forget(ana, "array[%s]", also)
    assert contents(ana) == ["Ana drinks tea."]


def test_a_summary_goes_with_any_turn_it_covers(ana: psycopg.Connection) -> None:
    turns = talk(ana, "I moved to Bern.", "How nice.", SECRET)
    drawn(ana, "Ana moved and told her PIN.", *turns, kind="summary")
    reflection = drawn(ana, "Ana talks a lot.", *turns, kind="reflection")
    forget(ana, "array[%s]", turns[2])
    assert contents(ana) == ["I moved to Bern.", "How nice.", "Ana talks a lot."]
    assert ana.execute("select source_id from memory_evidence where id = %s", (reflection,)).fetchall() == [
        (turns[0],),
        (turns[1],),
    ]


def test_all_versions_go(ana: psycopg.Connection) -> None:
    first = remember(ana, SECRET)
    second = one(ana, "select memory_update(%s, 'My PIN is 1234.')", first)
    one(ana, "select memory_update(%s, 'My PIN is 4321.')", second)
    assert forget(ana, "array[%s]", second)["memory", "deleted"] == 3
    assert contents(ana) == []


def test_exact_duplicates_stay_and_are_reported(ana: psycopg.Connection) -> None:
    secret, other = remember(ana, SECRET), remember(ana, SECRET)
    counts = forget(ana, "array[%s]", secret)
    assert (counts["memory", "deleted"], counts["memory", "mention"]) == (1, 1)
    assert [(key["id"], finding) for *_, key, finding in left(ana)] == [(other, "copy"), (other, "mention")]


def test_a_duplicate_of_one_word_is_reported(ana: psycopg.Connection) -> None:
    first, _ = remember(ana, "Tea."), remember(ana, "Tea.")
    assert forget(ana, "array[%s]", first)["memory", "mention"] == 1


def test_a_conversation_takes_nothing_that_was_said_elsewhere(ana: psycopg.Connection) -> None:
    fact, joined = remember(ana, SECRET), remember(ana, "Ana drinks tea.")
    ana.execute("""select setting_set('memory_duplicates', '"join_exact"')""")
    said, reply = talk(ana, "What is my PIN? I drink tea.", SECRET)
    assert drawn(ana, "Ana drinks tea.", said) == joined
    drawn(ana, "Ana asked for her PIN.", reply)
    session_id = one(ana, "select session_id from session")
    counts = forget(ana, "session_id => %s", session_id)
    assert contents(ana) == [SECRET, "Ana drinks tea."]
    assert counts["memory", "deleted"] == 3
    assert counts["memory", "mention"] == 1
    assert {key["id"] for *_, key, _ in left(ana)} == {fact}


def test_what_a_conversation_had_superseded_is_true_again(ana: psycopg.Connection) -> None:
    talk(ana, "I live in Oslo.")
    ana.execute("select memory_consolidate()")
    moved = talk(ana, "I live in Bergen.")[0]
    ana.execute("select memory_consolidate()")
    facts = (
        "select content, valid_to is null, superseded_by is null from memory where kind = 'fact' order by id"
    )
    oslo, bergen = ana.execute(facts).fetchall()
    assert (oslo[1:], bergen[1:]) == ((False, False), (True, True))
    counts = forget(ana, "session_id => (select session_id from memory where id = %s)", moved)
    assert counts["memory", "changed"] == 1
    assert ana.execute(facts).fetchall() == [(oslo[0], True, True)]


def test_a_version_between_two_others_leaves_them_in_order(ana: psycopg.Connection) -> None:
    said = talk(ana, "I moved to Bern.")[0]
    first = remember(ana, "Ana lives in Oslo.", valid_to="2099-01-01")
    second = one(
        ana,
        "select memory_update(%s, 'Ana lives in Bern.', evidence => %s)",
        first,
        Jsonb([{"source_id": said, "quote": "Bern"}]),
    )
    third = one(ana, "select memory_update(%s, 'Ana lives in Rome.')", second)
    forget(ana, "session_id => (select session_id from memory where id = %s)", said)
    version = "select superseded_by, valid_to = '2099-01-01' from memory where id = %s"
    assert one(ana, version, first) == (third, False)
    forget(ana, "filter => %s", Jsonb({"content": "Rome"}))
    assert one(ana, version, first) == (None, True)


def test_an_answers_record_goes_with_it(ana: psycopg.Connection) -> None:
    for text in ("Hello", "Good day"):
        ana.execute("select llm_chat(%s, model => %s)", (text, SCRIPTED_GENERATOR))
    kept = one(ana, "select max(id) from generation")
    counts = forget(ana, "session_id => (select session_id from memory where content = 'Hello')")
    assert (counts["generation", "deleted"], counts["decision", "deleted"]) == (1, 1)
    assert ana.execute("select id from generation").fetchall() == [(kept,)]


def test_a_document_goes_with_what_was_drawn_from_it_alone(ana: psycopg.Connection) -> None:
    ana.execute("select document_insert('The pump leaks. Call Ann.', 'manual.txt')")
    chunk, said = one(ana, "select max(id) from memory"), talk(ana, "Call Ann.")[0]
    drawn(ana, "The pump is old.", chunk)
    both = drawn(ana, "Ann repairs.", chunk, said)
    assert one(ana, "select document_delete('manual.txt')") == 1
    assert [row[0] for row in ana.execute("select id from memory order by id")] == [said, both]
    assert one(ana, "select scope from forget_receipt") == "document"
    assert left(ana) == []


def test_copies_go_along_where_that_is_asked_for(ana: psycopg.Connection) -> None:
    secret, _, said = remember(ana, SECRET), remember(ana, SECRET), talk(ana, SECRET)[0]
    counts = forget(ana, "array[%s], copies => true", secret)
    assert counts["memory", "deleted"] == 2
    assert counts["memory", "mention"] == 1
    assert left(ana) == [
        ("memory", "content", {"id": said}, "copy"),
        ("memory", "content", {"id": said}, "mention"),
    ]


def test_replies_that_repeat_it_are_reported(ana: psycopg.Connection) -> None:
    said, reply, unrelated, _ = talk(
        ana, SECRET, "I noted that your PIN is 9821, Ana.", "Thanks!", "You are welcome."
    )
    ana.execute("update session set system_prompt = 'The PIN 9821 is hers.'")
    counts = forget(ana, "array[%s]", said)
    assert (counts["memory", "mention"], counts["session", "mention"]) == (1, 1)
    session_id = str(one(ana, "select session_id from session"))
    assert left(ana) == [
        ("memory", "content", {"id": reply}, "mention"),
        ("session", "system_prompt", {"session_id": session_id}, "mention"),
    ]
    ana.execute("update session set system_prompt = 'Be brief.'")
    forget(ana, "array[%s]", reply)
    assert left(ana, 1) == []
    assert one(ana, "select min(id) from memory") == unrelated


def test_a_copy_that_comes_later_is_found(ana: psycopg.Connection) -> None:
    forget(ana, "array[%s]", remember(ana, SECRET))
    assert left(ana) == []
    again = remember(ana, "my  pin is\n9821.")
    assert left(ana) == [("memory", "content", {"id": again}, "copy")]


def test_what_was_shown_no_longer_says_so(ana: psycopg.Connection) -> None:
    secret, tea = remember(ana, SECRET), remember(ana, "I like tea.")
    ana.execute("select llm_chat('What is my PIN?', model => %s)", (SCRIPTED_GENERATOR,))
    assert one(ana, "select memory_ids from generation") == [secret]
    question = one(ana, "select id from memory where role = 'user'")
    ana.execute(
        "update memory set metadata = metadata || %s where role = 'assistant'",
        (Jsonb({"reply_to": question, "memory_ids": [tea, secret, "x"]}),),
    )
    ana.execute(
        """insert into kv_state (session_id, model, first, fingerprint, tokens, state, mac)
           select session_id, 'x', 0, '', '{1}', '', '' from session"""
    )
    counts = forget(ana, "array[%s]", secret)
    assert (
        counts["generation", "changed"] == counts["memory", "changed"] == counts["kv_state", "deleted"] == 1
    )
    assert one(ana, "select memory_ids, prompt_sha256 from generation") == ([], "")
    said = """select metadata -> 'reply_to', metadata -> 'memory_ids', metadata ? 'model'
        from memory where role = 'assistant'"""
    assert one(ana, said) == (question, [tea, "x"], True)
    assert one(ana, "select count(*) from kv_state") == 0
    assert "reference" not in [finding for *_, finding in left(ana)]
    forget(ana, "array[%s]", question)
    assert one(ana, said) == (None, [tea, "x"], True)


def test_a_forgotten_turn_is_not_shown_again(ana: psycopg.Connection) -> None:
    detail = "session_id from llm_chat_detail('My PIN is 9821, remember it.', model => %s)"
    session_id = one(ana, f"select {detail}", SCRIPTED_GENERATOR)
    ana.execute("select llm_chat('Thank you.', %s, model => %s)", (session_id, SCRIPTED_GENERATOR))
    assert one(ana, "select title from session") == "My PIN is 9821, remember it."
    forget(ana, "(select array_agg(id) from memory where turn = 1)")
    assert one(ana, "select title from session") is None
    shown = ana.execute(
        "select content from session_context(%s, 'What is my PIN?', %s)", (session_id, SCRIPTED_GENERATOR)
    ).fetchall()
    assert len(shown) > 2
    assert "9821" not in str(shown)
    ana.execute("select llm_chat('Go on.', %s, model => %s)", (session_id, SCRIPTED_GENERATOR))
    assert one(ana, "select array_agg(turn order by turn) from memory where kind = 'message'") == [
        2,
        3,
        4,
        5,
        6,
    ]


def test_a_review_goes_with_its_answer(ana: psycopg.Connection) -> None:
    message = one(ana, "select message_id from llm_chat_detail('Hello', model => %s)", SCRIPTED_GENERATOR)
    ana.execute("select self_review(%s, %s)", (message, SCRIPTED_GENERATOR))
    assert forget(ana, "array[%s]", message)["review", "deleted"] == 1
    assert one(ana, "select count(*) from review") == 0


# What is named.


def test_a_session_goes_whole(ana: psycopg.Connection) -> None:
    first, second = talk(ana, SECRET, "Noted."), talk(ana, "I like tea.", "Fine.")
    drawn(ana, "Ana has a PIN.", first[0])
    session_id = one(ana, "select session_id from memory where id = %s", first[0])
    ana.execute(
        """insert into kv_state (session_id, model, first, fingerprint, tokens, state, mac)
           select session_id, 'x', 0, '', '{1}', '', '' from session"""
    )
    counts = forget(ana, "session_id => %s", session_id)
    assert counts["session", "deleted"] == counts["kv_state", "deleted"] == 1
    assert counts["memory", "deleted"] == 3
    assert [row[0] for row in ana.execute("select id from memory order by id")] == second
    assert one(ana, "select count(*) from session") == one(ana, "select count(*) from kv_state") == 1
    assert left(ana) == []


@pytest.mark.parametrize(
    ("filter", "gone"),
    [
        ({"kind": "document"}, {"b"}),
        ({"source": "manual"}, {"b"}),
        ({"metadata": {"topic": "tea"}}, {"a", "c"}),
        ({"metadata": {"topic": "tea"}, "kind": "fact"}, {"a", "c"}),
        ({"content": "GREEN"}, {"a"}),
        ({"role": "user"}, set()),
        ({"before": "2001-01-01"}, set()),
        ({"since": "2001-01-01"}, {"a", "b", "c"}),
        ({"since": "2001-01-01", "kind": "summary"}, set()),
    ],
)
def test_a_filter_chooses(ana: psycopg.Connection, filter: dict[str, object], gone: set[str]) -> None:  # noqa: A002
    names = {
        remember(ana, "Green tea is fine.", metadata={"topic": "tea", "n": 1}): "a",
        remember(ana, "Press the red button.", kind="document", source="manual", source_key="1"): "b",
        remember(ana, "Black tea is stronger.", metadata={"topic": "tea"}): "c",
    }
    counts = forget(ana, "filter => %s", Jsonb(filter))
    assert counts["memory", "deleted"] == len(gone)
    assert {names[row[0]] for row in ana.execute("select id from memory")} == set(names.values()) - gone
    assert one(ana, "select scope from forget_receipt") == "filter"


def test_a_filter_works_as_often_as_wanted(ana: psycopg.Connection) -> None:
    for _ in range(8):  # PostgreSQL plans anew the first five times
        forget(ana, "filter => %s", Jsonb({"kind": "fact"}))


@pytest.mark.parametrize(
    ("filter", "sqlstate"),
    [
        ({}, "22023"),
        ({"content": ""}, "22023"),
        ({"content": None}, "22004"),
        ({"metadata": {}}, "22023"),
        ({"kind": "facts"}, "22023"),
        ({"kind": None}, "22023"),
        ({"role": "assistent"}, "22023"),
        ({"kinds": "fact"}, "22023"),
        ({"since": "soon"}, "22023"),
    ],
)
@pytest.mark.shares
def test_a_filter_that_chooses_all_or_nothing_by_mistake_is_refused(
    ana: psycopg.Connection,
    filter: dict[str, object],  # noqa: A002
    sqlstate: str,
) -> None:
    assert contents(ana) or remember(ana, "I like tea.")
    with fails(sqlstate):
        forget(ana, "filter => %s", Jsonb(filter))
    assert contents(ana) == ["I like tea."]


def test_everything_goes_and_others_stay(
    ana: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    for connection in (ana, bob):
        source = talk(connection, SECRET, "Noted.")[0]
        drawn(connection, "There is a PIN.", source)
        remember(connection, "I like tea.")
    before = db.execute(
        "select to_jsonb(m) from mindful.memory m where tenant = %s order by id", (bob.info.user,)
    )
    bobs = before.fetchall()
    counts = forget(ana, "everything => true")
    assert (counts["memory", "deleted"], counts["session", "deleted"]) == (4, 1)
    assert contents(ana) == []
    assert one(ana, "select count(*) from session") == 0
    assert one(ana, "select sum(memories), sum(lexemes) from memory_count") == (0, 0)
    assert left(ana) == []
    after = db.execute(
        "select to_jsonb(m) from mindful.memory m where tenant = %s order by id", (bob.info.user,)
    )
    assert after.fetchall() == bobs
    assert forget(ana, "everything => true")["memory", "deleted"] == 0


def test_an_attached_table_keeps_its_rows(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute(f'create schema shop authorization "{ana.info.user}"')
    ana.execute("create table shop.ticket (id int primary key, body text)")
    ana.execute("insert into shop.ticket values (1, 'No toner.'), (2, 'The machine leaks.')")
    ana.execute("select memory_attach('shop.ticket', 'body')")
    counts = forget(ana, "filter => %s", Jsonb({"source": "shop.ticket"}))
    assert counts["memory", "deleted"] == counts["shop.ticket", "kept"] == 2
    assert one(ana, "select count(*) from shop.ticket") == 2
