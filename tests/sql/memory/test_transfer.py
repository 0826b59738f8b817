"""Export and import: nothing is lost either way, and nothing is half imported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import Connect, fails
from support.deletion import delete
from support.query import one

Line = dict[str, Any]


def export(connection: psycopg.Connection, arguments: str = "") -> list[Line]:
    return [line for (line,) in connection.execute(f"select memory_export({arguments})".encode())]


def load(connection: psycopg.Connection, lines: Sequence[object]) -> tuple[int, ...]:
    with connection.transaction():
        connection.execute("create temp table given (line jsonb) on commit drop")
        with connection.cursor() as cursor:
            cursor.executemany("insert into given values (%s)", [(json.dumps(line),) for line in lines])
        row = connection.execute("select * from _mindful.memory_import('given')").fetchone()
    assert row is not None
    return row


def canonical(lines: list[Line]) -> list[Line]:
    """Put what stands at an id in the id's place: ids differ, what they mean does not."""
    memories = sorted(
        (line for line in lines if line["type"] == "memory"),
        key=lambda line: (line["created_at"], line["content"], line["id"]),
    )
    place = {line["id"]: number for number, line in enumerate(memories)}
    keys = ("id", "source_id", "target_id", "superseded_by")
    found = [
        {key: place[value] if key in keys and value is not None else value for key, value in line.items()}
        for line in lines
    ]
    return sorted(found, key=lambda line: json.dumps(line, sort_keys=True))


@pytest.fixture
def full(db: psycopg.Connection, ana: psycopg.Connection) -> psycopg.Connection:
    """Ana, with something of everything: two embedders' vectors, odd numbers and times among it."""
    ana.execute(
        'select memory_insert(\'Rex is my dog, he says "woof".\n\\t\', metadata => \'{"a": [1, null, "é"]}\')'
    )
    db.execute("select model_default_set('scripted-embedder', force => true)")
    for _ in range(2):  # the same twice
        ana.execute("select memory_insert('Paris is rainy.')")
    row = ana.execute("select session_start('Talk', 'Be brief.', '{\"x\": 1}')").fetchone()
    assert row is not None
    ana.execute(
        "select message_insert(%s, 'user', 'Hello.', created_at => '2001-02-03 04:05:06.789012+05')", row
    )
    ana.execute("select message_insert(%s, 'assistant', 'Hi.', metadata => '{\"confidence\": 0.1}')", row)
    ana.execute("select session_start()")
    ana.execute("select document_insert('# One\n\ntext\n\n# Two\n\nmore', 'a.md')")
    ana.execute(
        """update memory set importance = 0.1, confidence = 0.3333333, level = 'wisdom', valid_from = '-infinity',
               valid_to = '2020-01-01', superseded_by = (select max(id) from memory where kind = 'fact')
           where id = (select min(id) from memory)"""
    )
    ana.execute(
        "insert into memory_access (id, access_count) select id, id + 1 from memory where kind = 'fact'"
    )
    ana.execute(
        """insert into memory_link (source_id, target_id, relation, weight)
           select min(id), max(id), 'about', 0.7 from memory"""
    )
    ana.execute(
        "insert into memory_evidence (id, source_id, quote) select min(id), max(id), 'wo\"of' from memory"
    )
    return ana


@pytest.mark.parametrize("embeddings", ["true", "false"])
@pytest.mark.smoke
def test_what_is_exported_is_imported_as_it_was(
    embeddings: str, full: psycopg.Connection, bob: psycopg.Connection
) -> None:
    bob.execute("select memory_insert('Bob has a cat.')")
    delete(bob, "memory")
    lines = export(full, f"embeddings => {embeddings}")
    assert {line["type"] for line in lines} == {"export", "session", "memory", "link", "evidence", "access"}
    assert load(bob, lines) == (2, 6, 0, 1, 1, 3)
    assert canonical(export(bob, f"embeddings => {embeddings}")) == canonical(lines)
    found = bob.execute("select content from memory_recall('Is Paris rainy?', 1)").fetchone()
    assert found == ("Paris is rainy.",)
    # Those of the default embedder, and what came with the lines of the other one's.
    counts = [
        bob.execute(f"select count(*) from memory_embedding_{model}".encode()).fetchone()
        for model in ("scripted_embedder", "all_minilm_l6_v2")
    ]
    assert counts == ([(6,), (1,)] if embeddings == "true" else [(6,), (0,)])
    assert (
        bob.execute("select sum(memories), sum(lexemes) from memory_count").fetchone()
        == full.execute("select sum(memories), sum(lexemes) from memory_count").fetchone()
    )


def test_importing_twice_adds_nothing(full: psycopg.Connection, bob: psycopg.Connection) -> None:
    lines = export(full)
    load(bob, lines)
    before = export(bob)
    assert load(bob, lines) == (0, 0, 6, 0, 0, 0)
    assert load(full, before) == (0, 0, 6, 0, 0, 0)
    assert export(bob) == before
    assert canonical(export(full)) == canonical(lines)


def test_a_key_without_a_source_is_known_again(ana: psycopg.Connection) -> None:
    ana.execute("select memory_insert('Rex is my dog.', source_key => 'k')")
    assert load(ana, export(ana)) == (0, 0, 1, 0, 0, 0)


def test_what_was_lost_comes_back(full: psycopg.Connection) -> None:
    lines = export(full, "embeddings => true")
    delete(full, "memory", "starts_with(content, 'Rex') or role = 'assistant'")
    assert load(full, lines) == (0, 2, 4, 1, 1, 1)
    assert canonical(export(full, "embeddings => true")) == canonical(lines)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [("kinds => '{fact}'", 3), ("kinds => '{}'", 0), ("source => 'a.md'", 1), ("source => 'b'", 0)],
)
def test_an_export_can_be_of_a_part(
    arguments: str, count: int, full: psycopg.Connection, bob: psycopg.Connection
) -> None:
    lines = export(full, arguments)
    assert [line["type"] for line in lines].count("memory") == count
    assert "session" not in {line["type"] for line in lines}
    assert load(bob, lines)[1] == count


def test_a_session_can_be_exported(full: psycopg.Connection, bob: psycopg.Connection) -> None:
    row = full.execute("select session_id from session where title = 'Talk'").fetchone()
    assert row is not None
    lines = export(full, f"session_id => '{row[0]}'")
    assert [line["type"] for line in lines] == ["export", "session", "memory", "memory"]
    assert load(bob, lines) == (1, 2, 0, 0, 0, 0)
    assert bob.execute("select role, content from conversation order by turn").fetchall() == [
        ("user", "Hello."),
        ("assistant", "Hi."),
    ]


SESSION = "00000000-0000-4000-8000-000000000001"
FACT: Line = {"type": "memory", "id": 1, "content": "A fact."}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ([], "not a JSON object"),
        (None, "not a JSON object"),
        ({"type": "letter"}, "has an unknown type"),
        ({"content": "x"}, "has an unknown type"),
        ({"type": "memory", "content": "x"}, "no id"),
        ({"type": "memory", "id": 2}, "no content"),
        ({"type": "memory", "id": 2, "content": " \n"}, "no content"),
        ({"type": "memory", "id": 2, "content": "é" * 131073}, "more than 262144"),
        ({"type": "memory", "id": "two", "content": "x"}, "cannot be read"),
        ({"type": "memory", "id": 2, "content": "x", "created_at": "someday"}, "cannot be read"),
        ({"type": "memory", "id": 2, "content": "x", "kind": "rumour"}, "memory_kind_check"),
        ({"type": "memory", "id": 2, "content": "x", "importance": 7}, "memory_importance_check"),
        ({"type": "memory", "id": 2, "content": "x", "metadata": []}, "memory_metadata_check"),
        ({"type": "memory", "id": 2, "content": "x", "kind": "message"}, "breaks the rule"),
        (
            {"type": "memory", "id": 2, "content": "x", "valid_from": "2020-01-01", "valid_to": "2019-01-01"},
            "validity",
        ),
        ({"type": "memory", "id": 2, "content": "x", "session_id": SESSION}, f"session {SESSION}"),
        ({"type": "memory", "id": 1, "content": "x"}, "another memory of the file"),
        ({"type": "memory", "id": 2, "content": "x", "created_at": "infinity"}, "memory_created_at_range"),
        ({"type": "session"}, "no session_id"),
        ({"type": "session", "session_id": "1"}, "cannot be read"),
        ({"type": "link", "source_id": 1}, "no source_id or target_id"),
        ({"type": "link", "source_id": 1, "target_id": 9, "relation": "about"}, "memory 9"),
        ({"type": "link", "source_id": 1, "target_id": 1, "relation": "about"}, "memory_link_check"),
        ({"type": "evidence", "id": 1, "source_id": 1}, "no source_id or quote"),
        ({"type": "access", "id": 8}, "memory 8"),
        ({"type": "access", "id": 1, "access_count": 0}, "memory_access_access_count_check"),
    ],
)
@pytest.mark.shares
def test_the_broken_line_is_named_and_nothing_imported(
    ana: psycopg.Connection, line: object, words: str
) -> None:
    with fails("22023", "Nothing was imported") as caught:
        load(ana, [FACT, line, FACT | {"id": 3}])
    assert "line 2 " in str(caught.value)
    assert words in str(caught.value)
    assert export(ana) == [{"type": "export", "models": None}]
    assert ana.execute("select count(*) from session").fetchone() == (0,)


@pytest.mark.parametrize("value", [None, "", "a\x01", -1, 1.5, 10**40, True, [], {}], ids=repr)
def test_whatever_stands_at_a_key_is_read_or_named_by_its_line(
    full: psycopg.Connection, bob: psycopg.Connection, value: object
) -> None:
    lines = export(full)
    refused = set()
    for number, key in [(number, key) for number, line in enumerate(lines) for key in line]:
        changed = [line | {key: value} if at == number else line for at, line in enumerate(lines)]
        with bob.transaction(force_rollback=True):
            try:
                with bob.transaction():
                    bob.execute("select memory_import(%s)", (Jsonb(changed),))
            except psycopg.errors.InvalidParameterValue as error:
                if not str(error).startswith("mindful: line "):
                    raise
                refused.add(key)
    assert {"type", "id", "session_id"} <= refused


@pytest.mark.parametrize("embedding", ["x", [1, 2], None, ["x"] * 64])
def test_an_embedding_that_is_none_of_its_model_is_refused(
    ana: psycopg.Connection, embedding: object
) -> None:
    row = ana.execute("select jsonb_object_agg(name, sha256) from model where kind = 'embedder'").fetchone()
    assert row is not None
    line = FACT | {"embeddings": {"scripted-embedder": embedding}}
    with fails("22023", "Nothing was imported") as caught:
        load(ana, [{"type": "export", "models": row[0]}, line])
    assert "line 2 has an embedding by scripted-embedder that is not an array of 64 numbers" in str(
        caught.value
    )


def test_another_text_in_the_same_place_is_refused(full: psycopg.Connection) -> None:
    before = export(full)
    for key in ("turn", "source"):
        lines = [line | {"content": "Changed."} if line.get(key) else line for line in before]
        with fails("22023", "Nothing was imported"):
            load(full, lines)
    assert export(full) == before


def test_what_a_line_lacks_is_the_columns_default(ana: psycopg.Connection) -> None:
    assert load(ana, [FACT, FACT | {"id": 2}]) == (0, 2, 0, 0, 0, 0)
    assert ana.execute("select distinct kind, importance, level, metadata from memory").fetchall() == [
        ("fact", 0.5, "data", {})
    ]
    assert load(ana, []) == (0, 0, 0, 0, 0, 0)


def test_an_array_of_lines_is_imported_as_a_file_is(
    full: psycopg.Connection, bob: psycopg.Connection
) -> None:
    lines = export(full, "embeddings => true")
    counts = bob.execute("select * from memory_import(%s)", (Jsonb(lines),)).fetchone()
    assert counts is not None
    assert counts[1] == 6
    assert canonical(export(bob, "embeddings => true")) == canonical(lines)
    again = "select memories, kept from memory_import((select jsonb_agg(x) from memory_export() x))"
    assert bob.execute(again).fetchone() == (0, 6)


def test_the_invalid_element_of_an_array_is_named(ana: psycopg.Connection) -> None:
    for lines, message in (
        ('[{"type": "export"}, 7]', "line 2 "),
        ('[{"type": "memory", "id": 1, "content": ""}]', "line 1 has no content"),
        ('{"type": "memory"}', "lines is a JSON object"),
    ):
        with fails("22023") as caught:
            ana.execute("select memory_import(%s)", (lines,))
        assert message in str(caught.value)
    with fails("22004"):
        ana.execute("select memory_import(null)")


def test_a_table_of_lines_is_asked_for(ana: psycopg.Connection) -> None:
    ana.execute("create temp table two (line jsonb, other jsonb)")
    ana.execute("create temp table texts (line text)")
    ana.execute("create temp view seen as select '{}'::jsonb as line")
    for relation, sqlstate in (
        ("'two'", "42809"),
        ("'texts'", "42809"),
        ("'seen'", "42809"),
        ("null", "22004"),
    ):
        with fails(sqlstate):
            ana.execute(f"select _mindful.memory_import({relation})".encode())
    with fails("42P01", None):
        ana.execute("select _mindful.memory_import('nowhere')")


def test_embeddings_of_another_model_of_that_name_are_computed_anew(
    full: psycopg.Connection, bob: psycopg.Connection
) -> None:
    lines = export(full, "embeddings => true")
    lines[0]["models"]["scripted-embedder"] = "other"
    for line in lines:
        if "scripted-embedder" in line.get("embeddings", {}):
            line["embeddings"]["scripted-embedder"] = [1, 0]
    load(bob, lines)
    assert bob.execute(
        "select count(distinct embedding), count(*) from memory_embedding_scripted_embedder"
    ).fetchone() == (5, 6)


def test_a_file_reaches_nobody_elses_memories(
    full: psycopg.Connection, bob: psycopg.Connection, db: psycopg.Connection
) -> None:
    """Bob's lines name ana as tenant, her ids and her sessions."""
    before = export(full, "embeddings => true")
    tenant = full.info.user
    ids = [line["id"] for line in before if line["type"] == "memory"]
    assert export(bob) == [{"type": "export", "models": None}]
    lines = [line | {"tenant": tenant} for line in before if line["type"] in ("export", "session")]
    lines += [FACT | {"id": ids[0], "tenant": tenant, "superseded_by": ids[1]}]
    assert load(bob, lines) == (2, 1, 0, 0, 0, 0)
    with fails("22023", "Nothing was imported"):
        load(bob, [*lines, {"type": "link", "source_id": ids[0], "target_id": ids[1], "relation": "about"}])
    assert export(full, "embeddings => true") == before
    found = db.execute(
        "select tenant, id = any (%s), superseded_by from memory where content = 'A fact.'", (ids,)
    )
    assert found.fetchall() == [(bob.info.user, False, None)]


def test_readers_neither_export_nor_import(reader: psycopg.Connection) -> None:
    for statement in (
        "select memory_export()",
        "select _mindful.memory_import('pg_class')",
        "select memory_import('[]')",
    ):
        with fails("42501", None):
            reader.execute(statement.encode())


def test_many_lines_are_few_batches(
    db: psycopg.Connection, ana: psycopg.Connection, connect: Connect
) -> None:
    db.execute("select model_default_set('scripted-embedder', force => true)")
    lines = [FACT | {"id": n, "content": f"Fact {n}."} for n in range(3000)]
    assert load(ana, lines)[1] == 3000
    assert ana.execute("select count(*) from memory_embedding_scripted_embedder").fetchone() == (3000,)
    contents = ana.execute("select content from memory order by id").fetchall()
    assert contents == [(f"Fact {n}.",) for n in range(3000)]


@pytest.mark.smoke
def test_replies_name_their_question_and_memories_by_the_new_ids(
    ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    """The ids of a file are those of other memories where it is imported."""
    fact = one(ana, "select memory_insert('Rex is my dog.')")
    gone = one(ana, "select memory_insert('A note.', 'document')")
    session = one(ana, "select session_start()")
    asked = one(ana, "select message_insert(%s, 'user', 'Who is Rex?')", session)
    insert = "select message_insert(%s, %s, %s, %s)"
    metadata: dict[str, object] = {
        "reply_to": asked,
        "memory_ids": [gone, fact, "x", str(asked)],
        "model": "m",
    }
    ana.execute(insert, (session, "assistant", "A dog.", Jsonb(metadata)))
    ana.execute(insert, (session, "clarification", "Which?", Jsonb({"reply_to": gone})))
    ana.execute(insert, (session, "assistant", "His.", Jsonb({"reply_to": "msg-abc", "memory_ids": "x"})))
    ana.execute(insert, (session, "user", "Why?", Jsonb(metadata)))
    lines = [line for line in export(ana) if line.get("id") != gone]
    bob.execute("select memory_insert('Bob has a cat.')")
    load(bob, lines)
    new: dict[str, int] = dict(bob.execute("select content, id from memory").fetchall())
    found = bob.execute(
        "select content, metadata from memory where metadata <> '{}' order by turn"
    ).fetchall()
    assert found == [
        (
            "A dog.",
            {
                "reply_to": new["Who is Rex?"],
                "memory_ids": [new["Rex is my dog."], new["Who is Rex?"]],
                "model": "m",
            },
        ),
        ("His.", {"reply_to": "msg-abc", "memory_ids": "x"}),
        ("Why?", metadata),
    ]
    reviewed = "select question, memories from _mindful.review_subject(%s)"
    assert one(bob, reviewed, new["A dog."]) == ("Who is Rex?", ["Rex is my dog.", "Who is Rex?"])
    bob.execute("select memory_forget(%s)", ([new["Bob has a cat."]],))
    assert one(bob, "select metadata from memory where content = 'A dog.'") == found[0][1]
    assert load(ana, export(bob))[1] == 0


def test_only_the_ids_of_its_type_are_read_from_a_line(ana: psycopg.Connection) -> None:
    lines: list[Line] = [FACT, FACT | {"id": 2}]
    evidence = {"type": "evidence", "id": 1, "source_id": 2, "quote": "fact", "target_id": "a"}
    assert load(ana, [{"type": "export"}, {"type": "export"}, *lines, evidence])[:5] == (0, 2, 0, 0, 1)
    with fails("22023", "Nothing was imported") as caught:
        models = one(ana, "select jsonb_object_agg(name, sha256) from model where kind = 'embedder'")
        load(ana, [{"type": "export", "models": models}, FACT | {"embeddings": ["scripted-embedder"]}])
    assert "line 2 has an embedding" in str(caught.value)
