"""The text-search language of a tenant, and rebuilding the words of its memories."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from support import Connect, fails, one
from support.deletion import delete
from support.memories import remember, remember_all

GERMAN = ("Die Häuser am Hafen wurden verkauft.", "Im Garten stehen alte Bäume.")
MISSING = """select m.id from memory m, _mindful.terms(m.content, m.language) d
    where not exists (select from memory_term t where (t.tenant, t.lexeme, t.id) = (m.tenant, d.lexeme, m.id))"""
ORPHANED = """select t.lexeme from memory_term t where not exists (
    select from memory m, _mindful.terms(m.content, m.language) d
    where (m.tenant, m.id, d.lexeme) = (t.tenant, t.id, t.lexeme))"""


@pytest.fixture(autouse=True)
def quick(scripted: None) -> None:
    """The embedder takes no time."""


def speak(connection: psycopg.Connection, language: str) -> None:
    connection.execute("select setting_set('recall_language', to_jsonb(%s::text))", (language,))


def matches(connection: psycopg.Connection, query: str) -> list[str]:
    """Return the memories that hold a word of the query, best first."""
    rows = connection.execute("select content from memory_recall(%s) where bm25 is not null", (query,))
    return [row[0] for row in rows]


def lexemes(connection: psycopg.Connection) -> list[str]:
    return [row[0] for row in connection.execute("select distinct lexeme from memory_term order by 1")]


def check(connection: psycopg.Connection) -> None:
    """Compare the words and the counts with the texts."""
    assert connection.execute(MISSING).fetchall() == []
    assert connection.execute(ORPHANED).fetchall() == []
    counts = "select coalesce(sum(memories), 0), coalesce(sum(lexemes), 0), coalesce(sum(bytes), 0) from memory_count"
    assert one(connection, counts) == one(
        connection,
        """select count(*), coalesce(sum(_mindful.length(content, language)), 0),
               coalesce(sum(_mindful.memory_bytes(content, metadata)), 0) from memory""",
    )


def test_a_word_is_found_in_another_of_its_forms(ana: psycopg.Connection) -> None:
    remember_all(ana, *GERMAN)
    assert matches(ana, "Haus") == []
    speak(ana, "german")
    remember(ana, "Das dritte Haus steht leer.")
    assert matches(ana, "Haus") == ["Das dritte Haus steht leer."]
    assert one(ana, "select memory_index_rebuild()") == 3
    assert sorted(matches(ana, "Haus")) == ["Das dritte Haus steht leer.", GERMAN[0]]
    assert matches(ana, "Baum im Garten") == [GERMAN[1]]
    check(ana)


def test_a_tenants_language_is_its_own(
    ana: psycopg.Connection, bob: psycopg.Connection, admin: psycopg.Connection
) -> None:
    speak(ana, "german")
    for connection in (ana, bob):
        remember_all(connection, GERMAN[0])
    assert matches(ana, "Haus") == [GERMAN[0]]
    assert matches(bob, "Haus") == []
    admin.execute("""select setting_set('recall_language', '"german"', 'global')""")
    assert one(admin, "select memory_index_rebuild()") == 2
    assert matches(bob, "Haus") == [GERMAN[0]]


@pytest.mark.parametrize("language", ["klingon", "public.own", "", "english; drop table memory"])
def test_a_language_that_postgresql_does_not_have_is_refused(ana: psycopg.Connection, language: str) -> None:
    with fails("22023"):
        speak(ana, language)


def test_forgetting_reaches_words_of_an_earlier_language(ana: psycopg.Connection) -> None:
    ids = remember_all(ana, *GERMAN)
    speak(ana, "german")
    ana.execute("update memory set content = 'Ein anderer Text.' where id = %s", (ids[0],))
    check(ana)
    ana.execute("select memory_forget(%s)", (ids,))
    assert lexemes(ana) == []
    check(ana)


def test_a_copy_in_an_earlier_language_is_mentioned(ana: psycopg.Connection) -> None:
    copy = remember(ana, "Sie sagt: die Häuser am Hafen wurden verkauft.")
    speak(ana, "german")
    fact = remember(ana, GERMAN[0])
    receipt = one(ana, "select receipt_id from memory_forget(%s) limit 1", [fact])
    found = ana.execute(
        "select key from memory_forget_check(%s) where (relation, column_name) = ('memory', 'content')",
        (receipt,),
    )
    assert found.fetchall() == [({"id": copy},)]


def test_rows_that_were_written_without_triggers_are_indexed(
    ana: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    gone = remember(ana, "The old ship.")
    remember(bob, "The blue pot.")
    db.execute("set row_security = off")
    db.execute("insert into memory (tenant, content) values (%s, 'The green ship.')", (ana.info.user,))
    db.execute("delete from memory where id = %s", (gone,))
    db.execute("reset row_security")
    assert matches(ana, "green ships") == []
    before = bob.execute("select lexeme, xmin from memory_term").fetchall()
    assert one(ana, "select memory_index_rebuild()") == 1
    assert matches(ana, "green ships") == ["The green ship."]
    assert bob.execute("select lexeme, xmin from memory_term").fetchall() == before
    check(db)


def test_a_tenant_rebuilds_its_own_memories_only(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    remember(ana, "The blue pot.")
    before = ana.execute("select lexeme, xmin from memory_term").fetchall()
    with fails("42501", hint=None):
        bob.execute("insert into index_rebuild (tenant) values (%s)", (ana.info.user,))
    for call in ("index_rebuild_all()", f"index_rebuild('{ana.info.user}')"):
        with fails("42501", hint=None):
            bob.execute(f"select _mindful.{call}")
    assert one(bob, "select memory_index_rebuild()") == 0
    assert ana.execute("select lexeme, xmin from memory_term").fetchall() == before
    assert one(ana, "select count(*) from index_rebuild") == 0


def test_a_tenant_without_memories_has_no_words(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    remember(ana, "The blue pot.")
    db.execute("set row_security = off")
    db.execute("delete from memory")
    db.execute("reset row_security")
    db.execute("select memory_index_rebuild()")
    assert lexemes(ana) == []
    check(ana)


def test_a_memory_that_another_transaction_deletes_meanwhile_leaves_no_words(
    ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    ids = remember_all(ana, "The blue pot.", "The green ship.")
    with ana.transaction():
        ana.execute("select memory_index_rebuild()")
    delete(ana, "memory", f"id = {ids[0]}")
    check(db)


def test_an_import_takes_the_language_of_its_new_tenant(
    ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    remember_all(ana, *GERMAN)
    speak(bob, "german")
    (lines,) = ana.execute("select jsonb_agg(x) from memory_export() x").fetchone() or ()
    assert all("language" not in line for line in lines)
    lines = [line | {"language": "no such"} if line["type"] == "memory" else line for line in lines]
    bob.execute("select memory_import(%s)", (psycopg.types.json.Jsonb(lines),))
    assert matches(bob, "Haus") == [GERMAN[0]]
    check(bob)


@pytest.mark.parametrize("text", ["The green ship sails.", "Nothing of it."])
def test_a_change_beside_a_rebuild_leaves_no_word_of_the_old_text(connect: Connect, text: str) -> None:
    first, second = connect("ana"), connect("ana")
    old = remember(first, "The blue ship sails.")
    with ThreadPoolExecutor() as pool:
        with first.transaction():
            first.execute("select memory_index_rebuild()")
            waiting = pool.submit(second.execute, "update memory set content = %s where id = %s", (text, old))
            while not one(first, "select count(*) from pg_locks where not granted"):
                assert not waiting.done()
        waiting.result()
    words = first.execute("select lexeme from memory_term where id = %s", (old,)).fetchall()
    assert {word for (word,) in words} == set(
        one(first, "select tsvector_to_array(to_tsvector('english', %s))", text)
    )
