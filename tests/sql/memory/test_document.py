"""Documents: split by structure, and kept in step with their source."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import Connect, fails
from support.clock import within

GUIDE = """# Guide

How to keep a parrot.

## Food

Seeds, fruit and a little bread. Never give it avocado.

## Sleep

Cover the cage at dusk.
"""
LONG = "\n\n".join(
    f"Paragraph {n} tells of number {n * n}, its square, and of nothing else." for n in range(60)
)


@pytest.fixture(autouse=True)
def quick(db: psycopg.Connection) -> None:
    """Count words: the scripted embedder is the default."""
    db.execute("select model_default_set('scripted-embedder', force => true)")


def insert(connection: psycopg.Connection, content: str, source: str, **options: Any) -> tuple[int, ...]:
    given = "".join(f", {name} => %({name})s" for name in options)
    row = connection.execute(
        f"select * from document_insert(%(content)s, %(source)s{given})".encode(),
        {"content": content, "source": source} | options,
    ).fetchone()
    assert row is not None
    return row


def chunks(connection: psycopg.Connection, source: str) -> list[tuple[int, str, dict[str, Any]]]:
    return connection.execute(
        """select id, content, metadata from memory where source = %s and kind = 'document'
           order by (metadata -> 'chunk')::int""",
        (source,),
    ).fetchall()


@pytest.mark.smoke
def test_a_chunk_knows_its_place(ana: psycopg.Connection) -> None:
    assert insert(ana, GUIDE, "guide.md", title="Parrots", max_tokens=16, overlap=0) == (3, 3, 0, 0, 0)
    found = chunks(ana, "guide.md")
    assert [(m["title"], m["heading"], m["chunk"], m["chunks"]) for _, _, m in found] == [
        ("Parrots", "Guide", 1, 3),
        ("Parrots", "Guide > Food", 2, 3),
        ("Parrots", "Guide > Sleep", 3, 3),
    ]
    assert [GUIDE[m["start"] : m["end"]] for _, _, m in found] == [content for _, content, _ in found]


@pytest.mark.smoke
def test_what_is_unchanged_stays_the_same_memory(ana: psycopg.Connection) -> None:
    assert insert(ana, LONG, "numbers", max_tokens=16) == (60, 60, 0, 0, 0)
    before = {content: (memory_id, m) for memory_id, content, m in chunks(ana, "numbers")}
    embedded = "select id, xmin::text from memory_embedding_scripted_embedder"
    embeddings: dict[int, str] = dict(ana.execute(embedded))
    ana.execute("insert into memory_access (id) select id from memory")
    gone = "\n\nParagraph 20 tells of number 400, its square, and of nothing else."
    changed = "A new beginning, of more words than the budget of one chunk leaves.\n\n" + LONG
    changed = changed.replace("number 100,", "number one hundred,").replace(gone, "")
    assert insert(ana, changed, "numbers", max_tokens=16) == (60, 2, 0, 58, 2)
    after = chunks(ana, "numbers")
    kept = [(memory_id, content, m) for memory_id, content, m in after if content in before]
    assert [memory_id for memory_id, _, _ in kept] == [before[content][0] for _, content, _ in kept]
    assert [changed[m["start"] : m["end"]] for _, _, m in after] == [content for _, content, _ in after]
    assert [m["chunk"] for _, _, m in after] == list(range(1, 61))
    now: dict[int, str] = dict(ana.execute(embedded))
    assert {memory_id: now[memory_id] for memory_id, _, _ in kept} == {
        memory_id: embeddings[memory_id] for memory_id, _, _ in kept
    }
    assert len(now) == 60
    assert ana.execute("select count(*) from memory_access").fetchone() == (58,)
    assert insert(ana, changed, "numbers", max_tokens=16) == (60, 0, 0, 60, 0)


def test_chunks_with_the_same_text_are_several(ana: psycopg.Connection) -> None:
    text = "\n\n".join(["The same words stand here again, and again, and once more in this line."] * 3)
    assert insert(ana, text, "echo", max_tokens=16, overlap=0) == (3, 3, 0, 0, 0)
    assert insert(ana, text, "echo", max_tokens=16, overlap=0) == (3, 0, 0, 3, 0)


def test_neighbors_overlap(ana: psycopg.Connection) -> None:
    text = " ".join(f"Sentence number {n} ends here." for n in range(40))
    insert(ana, text, "overlapping", max_tokens=20, overlap=10)
    places = [(m["start"], m["end"]) for _, _, m in chunks(ana, "overlapping")]
    assert all(later[0] < earlier[1] for earlier, later in itertools.pairwise(places))
    assert places[0][0] == 0
    assert places[-1][1] == len(text)


def test_a_new_title_changes_no_chunk(ana: psycopg.Connection) -> None:
    insert(ana, GUIDE, "guide.md")
    assert insert(ana, GUIDE, "guide.md", title="Birds", metadata=Jsonb({"shelf": 3})) == (1, 0, 0, 1, 0)
    ((_, _, metadata),) = chunks(ana, "guide.md")
    assert (metadata["title"], metadata["shelf"]) == ("Birds", 3)


def test_chunks_fit_the_embedder_and_are_recalled(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    db.execute("select model_default_set('all-minilm-l6-v2', force => true)")
    text = LONG + "\n\n## No heading in prose: the parrot's name is Coco.\n"
    insert(ana, text, "birds.txt")
    row = ana.execute(
        "select content, source, metadata from memory_recall('parrot called Coco', 1)"
    ).fetchone()
    assert row is not None
    assert "Coco" in row[0]
    assert row[1] == "birds.txt"
    assert "heading" not in row[2]
    longest = max(len(content.split()) for _, content, _ in chunks(ana, "birds.txt"))
    assert longest < 240
    with fails("22023", "between 16 and 254"):
        insert(ana, text, "birds.txt", max_tokens=255)


@pytest.mark.smoke
def test_without_an_embedder_words_are_counted(db: psycopg.Connection, ana: psycopg.Connection) -> None:
    db.execute("update model set is_default = false where kind = 'embedder'")
    assert insert(ana, LONG, "numbers", max_tokens=20, overlap=0)[0] == 60


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("null, 's'", "22004"),
        ("'x', null", "22004"),
        ("'', 's'", "22023"),
        ("E' \\t\\n', 's'", "22023"),
        ("'x', ' '", "22023"),
        ("'x', repeat('s', 1025)", "54000"),
        ("repeat('word ', 4000000), 's'", "54000"),
        ("'x', 's', format => 'latex'", "22023"),
        ("'x', 's', format => null", "22023"),
        ("'x', 's', max_tokens => 15", "22023"),
        ("'x', 's', max_tokens => -1", "22023"),
        ("'x', 's', max_tokens => 2147483647", "22023"),
        ("'x', 's', overlap => -1", "22023"),
        ("'x', 's', max_tokens => 16, overlap => 9", "22023"),
        ("'x', 's', metadata => '[]'", "22023"),
    ],
)
@pytest.mark.shares
def test_bad_arguments_change_nothing(ana: psycopg.Connection, arguments: str, sqlstate: str) -> None:
    assert chunks(ana, "s") or insert(ana, GUIDE, "s")
    before = chunks(ana, "s")
    with fails(sqlstate):
        ana.execute(f"select document_insert({arguments})".encode())
    assert chunks(ana, "s") == before
    assert ana.execute("select count(*) from memory").fetchone() == (len(before),)


OPERATIONS: list[dict[str, Any]] = [
    {"key": "GET /pet", "content": "Find pets.", "heading": "pets", "metadata": {"method": "GET"}},
    {"key": "POST /pet", "content": "Add a pet."},
]


def insert_parts(connection: psycopg.Connection, parts: object, source: str = "api") -> tuple[int, ...]:
    row = connection.execute(
        "select * from document_insert_parts(%s, %s, 'Pets')", (source, Jsonb(parts))
    ).fetchone()
    assert row is not None
    return row


@pytest.mark.smoke
def test_parts_are_known_by_their_keys(ana: psycopg.Connection) -> None:
    assert insert_parts(ana, OPERATIONS) == (2, 2, 0, 0, 0)
    first = chunks(ana, "api")
    assert first[0][2] == {"title": "Pets", "heading": "pets", "method": "GET", "chunk": 1, "chunks": 2}
    changed = [{"key": "DELETE /pet", "content": "Remove a pet."}, OPERATIONS[0] | {"content": "List pets."}]
    assert insert_parts(ana, changed) == (2, 1, 1, 0, 1)
    second = chunks(ana, "api")
    assert [content for _, content, _ in second] == ["Remove a pet.", "List pets."]
    assert second[1][0] == first[0][0]
    assert ana.execute(
        "select count(*) from memory join memory_embedding_scripted_embedder using (tenant, id, content_hash)"
    ).fetchone() == (2,)


@pytest.mark.parametrize(
    ("parts", "sqlstate", "words"),
    [
        (None, "22023", "not a JSON array"),
        ([], "22023", "empty"),
        ([{"key": "a", "content": "x"}, 1], "22023", "element 2"),
        ([{"content": "x"}], "22004", "key of element 1"),
        ([{"key": "a", "content": "x"}, {"key": "b", "content": " "}], "22023", "content of element 2"),
        ([{"key": "a", "content": "x"}, {"key": "a", "content": "y"}], "22023", "more than once"),
        ([{"key": "a" * 1025, "content": "x"}], "54000", "key of element 1"),
        ([{"key": "a", "content": "x" * 262145}], "54000", "content of element 1"),
        ([{"key": "a", "content": "x", "color": 1}], "22023", "unknown field"),
        ([{"key": "a", "content": "x", "metadata": [1]}], "22023", "not a JSON object"),
    ],
)
@pytest.mark.smoke
def test_bad_parts_are_named_and_change_nothing(
    ana: psycopg.Connection, parts: object, sqlstate: str, words: str
) -> None:
    insert_parts(ana, OPERATIONS)
    with fails(sqlstate) as caught:
        insert_parts(ana, parts)
    assert words in str(caught.value)
    assert [content for _, content, _ in chunks(ana, "api")] == ["Find pets.", "Add a pet."]


def test_the_source_of_other_memories_is_refused(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute(f"create schema shop authorization {ana.info.user}")
    ana.execute("create table shop.ticket (id integer primary key, body text)")
    ana.execute("select memory_attach('shop.ticket', 'body')")
    ana.execute(
        "insert into memory (kind, content, source, source_key) values ('document', 'x', 'mine', '1')"
    )
    for source in ("shop.ticket", "mine"):
        with fails("42710"):
            insert(ana, GUIDE, source)
        with fails("42704"):
            ana.execute("select document_delete(%s)", (source,))
    assert ana.execute("select source, content from memory").fetchall() == [("mine", "x")]


def test_a_document_is_forgotten(ana: psycopg.Connection) -> None:
    insert(ana, GUIDE, "guide.md", max_tokens=16, overlap=0)
    insert(ana, LONG, "numbers")
    assert ana.execute("select document_delete('guide.md')").fetchone() == (3,)
    assert chunks(ana, "guide.md") == []
    assert chunks(ana, "numbers") != []
    for source in ("'guide.md'", "null"):
        with fails("42704"):
            ana.execute(f"select document_delete({source})".encode())


def test_documents_are_listed(ana: psycopg.Connection) -> None:
    insert(ana, GUIDE, "guide.md", title="Parrots", metadata=Jsonb({"fingerprint": "f1"}))
    insert_parts(ana, OPERATIONS)
    ana.execute("select memory_insert('No part of a document.', kind => 'document')")
    assert ana.execute(
        "select source, title, chunks, bytes, fingerprint from document_list()"
    ).fetchall() == [
        ("api", "Pets", 2, 20, None),
        ("guide.md", "Parrots", 1, len(GUIDE.strip()), "f1"),
    ]
    assert ana.execute("select source from document_list('api')").fetchall() == [("api",)]
    assert ana.execute("select created_at = updated_at from document where source = 'api'").fetchone() == (
        True,
    )


def test_nobody_reaches_anothers_documents(ana: psycopg.Connection, bob: psycopg.Connection) -> None:
    insert(ana, GUIDE, "guide.md", max_tokens=16, overlap=0)
    before = chunks(ana, "guide.md")
    assert bob.execute("select * from document").fetchall() == []
    assert bob.execute("select * from document_list('guide.md')").fetchall() == []
    assert insert(bob, "Mine.", "guide.md") == (1, 1, 0, 0, 0)
    assert insert_parts(bob, OPERATIONS, "other") == (2, 2, 0, 0, 0)
    assert bob.execute("select document_delete('guide.md')").fetchone() == (1,)
    with fails("42704"):
        bob.execute("select document_delete('guide.md')")
    assert chunks(ana, "guide.md") == before


def test_readers_reach_no_document(ana: psycopg.Connection, reader: psycopg.Connection) -> None:
    insert(ana, GUIDE, "guide.md")
    for statement in (
        "select * from document",
        "select document_insert('x', 'y')",
        "select document_delete('x')",
    ):
        with fails("42501", None):
            reader.execute(statement.encode())


def test_two_versions_at_once_leave_one(ana: psycopg.Connection, connect: Connect) -> None:
    other = connect("ana")
    with ana.transaction():
        insert(ana, GUIDE, "guide.md")
        waiting = threading.Thread(target=insert, args=(other, LONG, "guide.md"), kwargs={"max_tokens": 16})
        waiting.start()
        time.sleep(0.3)
        assert waiting.is_alive()
    waiting.join()
    assert ana.execute("select chunks from document").fetchall() == [(60,)]


@pytest.mark.parametrize(
    ("source", "text"), [("guide.md", LONG * 400), ("large.py", "def f(x):\n    return x\n\n" * 300_000)]
)
def test_a_cancel_is_heard_while_a_document_is_split(
    db: psycopg.Connection, ana: psycopg.Connection, source: str, text: str
) -> None:
    db.execute("select model_default_set('all-minilm-l6-v2', force => true)")
    insert(ana, GUIDE, "guide.md")
    ana.execute("set statement_timeout = 300")
    for _ in within(0.6):
        with fails("57014", None):
            insert(ana, text, source)
    ana.execute("reset statement_timeout")
    assert ana.execute("select chunks from document").fetchall() == [(1,)]
