"""mindful export, mindful import."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from mindful_client.files.lines import read_lines
from support.command import Command

ROLES = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hi!"}]
CHATGPT = [
    {
        "title": "Birds",
        "conversation_id": "c-1",
        "create_time": 981173106.5,
        "current_node": "d",
        "mapping": {
            "a": {"message": None, "parent": None},
            "b": {"message": {"author": {"role": "system"}, "content": {"parts": [""]}}, "parent": "a"},
            "c": {
                "message": {
                    "author": {"role": "user"},
                    "create_time": 981173107.0,
                    "content": {"content_type": "text", "parts": ["Hello?", {"asset_pointer": "x"}]},
                },
                "parent": "b",
            },
            "other": {
                "message": {"author": {"role": "assistant"}, "content": {"parts": ["No."]}},
                "parent": "c",
            },
            "d": {"message": {"author": {"role": "assistant"}, "content": {"parts": ["Hi!"]}}, "parent": "c"},
        },
    }
]
SHAREGPT = [
    {"id": "s1", "conversations": [{"from": "human", "value": "Hello?"}, {"from": "gpt", "value": "Hi!"}]}
]
FINE_TUNING = "\n".join(json.dumps({"messages": ROLES}) for _ in range(1))


def said(connection: psycopg.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("select role, content from conversation order by session_id, turn").fetchall()


@pytest.mark.parametrize("options", [[], ["--embeddings"]])
@pytest.mark.smoke
def test_a_file_carries_memories_from_one_to_another(
    options: list[str],
    mindful: Command,
    as_bob: Command,
    ana: psycopg.Connection,
    bob: psycopg.Connection,
    tmp_path: Path,
) -> None:
    ana.execute(
        """select memory_insert_many('[{"content": "Line\\n two \\"ü\\" \\\\ back"}, {"content": "Second."}]')"""
    )
    path = tmp_path / "all.jsonl"
    result = mindful("export", *options, path)
    assert (result.exit_code, path.read_text().count("\n")) == (0, 3)
    assert "embeddings" in path.read_text() if options else "embeddings" not in path.read_text()
    first = as_bob("import", path)
    assert first.stdout.startswith("2 memories, 0 sessions"), first.output
    assert as_bob("import", path).stdout.endswith("2 memories were here already.\n")
    for connection in (ana, bob):
        assert connection.execute("select content from memory order by id").fetchall() == [
            ('Line\n two "ü" \\ back',),
            ("Second.",),
        ]
    assert mindful("export", "--kind", "summary", "-").stdout.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [json.dumps(shape, indent=1) for shape in (ROLES, {"messages": ROLES}, [ROLES], CHATGPT, SHAREGPT)]
    + [FINE_TUNING, "\ufeff" + json.dumps(ROLES), "\n".join(map(json.dumps, ROLES))],
)
def test_conversations_of_every_shape_are_imported_once(
    text: str, mindful: Command, ana: psycopg.Connection, tmp_path: Path
) -> None:
    path = tmp_path / "chat.json"
    path.write_text(text)
    result = mindful("import", path)
    assert result.stdout.startswith("2 memories, 1 sessions"), result.output
    assert said(ana) == [("user", "Hello?"), ("assistant", "Hi!")]
    assert "2 memories were here already" in mindful("import", path).stdout
    assert len(said(ana)) == 2


def test_titles_and_times_are_kept(mindful: Command, ana: psycopg.Connection, tmp_path: Path) -> None:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(CHATGPT))
    assert mindful("import", path).exit_code == 0
    ana.execute("set timezone = 'UTC'")
    assert ana.execute("select title, created_at::text from session").fetchall() == [
        ("Birds", "2001-02-03 04:05:06.5+00")
    ]
    assert ana.execute("select created_at::text from conversation where turn = 1").fetchall() == [
        ("2001-02-03 04:05:07+00",)
    ]


def test_times_may_be_told_in_milliseconds(mindful: Command, ana: psycopg.Connection, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([message | {"timestamp": 981173106500} for message in ROLES]))
    assert mindful("import", path).exit_code == 0
    ana.execute("set timezone = 'UTC'")
    assert ana.execute("select distinct created_at::text from conversation").fetchall() == [
        ("2001-02-03 04:05:06.5+00",)
    ]


def test_a_broken_character_is_replaced(mindful: Command, ana: psycopg.Connection, tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "Hello\\ud800"}]}')
    assert mindful("import", path).exit_code == 0
    assert said(ana) == [("user", "Hello?")]


def test_a_pipe_is_read(mindful: Command, ana: psycopg.Connection, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(json.dumps(ROLES),))
    writer.start()
    assert mindful("import", path).exit_code == 0
    writer.join()
    assert said(ana) == [("user", "Hello?"), ("assistant", "Hi!")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ('[{"mapping": {"a": 5}}, 1]', "element 2 is no conversation"),
        (json.dumps([*ROLES, {"role": "user", "content": "x", "timestamp": 1e300}]), "a time that cannot be"),
        ("[]", "is empty"),
        ("[{]", "broken JSON"),
        ("{", "broken JSON"),
        ('{"type": "export"}\n{"type": ', "line 2 is broken JSON"),
        (
            '{"type": "export"}\n{"type": "memory", "id": 1, "content": "a\\u0000"}',
            "line 2 is broken JSON: it holds NUL",
        ),
        (
            '{"type": "export"}\n{"type": "memory", "id": 1, "content": "x", "kind": "y"}',
            "line 2 breaks the rule",
        ),
        ('{"type": "memory", "id": 1, "content": "x"}\n{"type": "memory", "id": 1}', "line 2 has no content"),
        ("[1, 2]", "element 1 is no conversation"),
        ('{"a": 1}', "element 1 is no conversation"),
        (json.dumps([*ROLES, {"role": "king", "content": "x"}]), "message 3 of conversation 1 has no role"),
        (
            json.dumps([*ROLES, {"role": "user", "content": "x" * 262145}]),
            "message 3 of conversation 1 has more",
        ),
        ("just words", "broken JSON"),
    ],
)
def test_a_broken_file_is_named_and_nothing_imported(
    text: str, words: str, mindful: Command, ana: psycopg.Connection, tmp_path: Path
) -> None:
    path = tmp_path / "broken"
    path.write_text(text)
    result = mindful("import", path)
    assert result.exit_code == 1, result.output
    assert words in result.stderr
    assert "Nothing was imported" in result.stderr
    assert ana.execute("select count(*) from memory").fetchone() == (0,)
    assert ana.execute("select count(*) from session").fetchone() == (0,)


def test_an_export_is_read_without_the_extra_of_ingest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ijson", None)
    line = {"type": "memory", "id": 1, "content": "The cat is called Tom."}
    assert list(read_lines(io.BytesIO(json.dumps(line).encode()))) == [line]


def test_a_failed_export_leaves_no_file(mindful: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("before")
    result = Command("host=/nonexistent")("export", path)
    assert result.exit_code == 1
    assert path.read_text() == "before"
