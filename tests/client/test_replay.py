"""Consolidation, samples and their export by the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result
from mindful_client.cli import main
from mindful_client.errors import InvalidInputError
from mindful_client.training.dataset import read
from psycopg.types.json import Jsonb
from support import SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR

NAMES = ["Ana", "Bob", "Eve", "Tom", "Zoe", "Kim", "Max", "Ida", "Leo", "Amy"]


@pytest.fixture
def mindful(dsn_of: Mapping[str, str], db: psycopg.Connection, ana: psycopg.Connection) -> Mapping[str, str]:
    """Ana's conversation, and her consent."""
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    db.execute("select model_training_set(%s, 'chatml', lora => '{\"rank\": 8}')", (SCRIPTED_GENERATOR,))
    messages = [
        {"role": "user", "content": "I love olives.", "metadata": {"speaker": name}} for name in NAMES
    ]
    ana.execute("select message_insert_many(session_start(), %s)", (Jsonb(messages),))
    ana.execute("select setting_set('training_consent', 'true')")
    return dsn_of


def call(dsn_of: Mapping[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--dsn", dsn_of["ana"], *arguments])


def exported(dsn_of: Mapping[str, str], directory: Path) -> Path:
    assert call(dsn_of, "consolidate").exit_code == 0
    made = call(dsn_of, "replay", "run", SCRIPTED_GENERATOR, "--level", "information")
    assert made.exit_code == 0, made.output
    done = call(dsn_of, "replay", "export", made.output.split()[1].rstrip(":"), str(directory))
    assert done.exit_code == 0, done.output
    return Path(done.output.strip())


def test_consolidate_reads_batch_by_batch(mindful: Mapping[str, str]) -> None:
    done = call(mindful, "consolidate", "--batch", "4")
    assert done.exit_code == 0
    assert [line.split(": ")[1] for line in done.output.splitlines()] == [
        "4 texts, 4 facts, 6 texts left",
        "8 texts, 8 facts, 2 texts left",
        "10 texts, 10 facts, 0 texts left",
    ]


def test_an_export_has_a_manifest_and_is_split_by_source(mindful: Mapping[str, str], tmp_path: Path) -> None:
    path = exported(mindful, tmp_path / "new")
    told = json.loads(path.read_text())
    assert (told["model"], told["prompt_format"], told["lora"]) == (SCRIPTED_GENERATOR, "chatml", {"rank": 8})
    dataset = read(path)
    assert {split: len(rows) for split, rows in dataset.rows.items()} == {
        split: file["pairs"] for split, file in told["files"].items()
    }
    subjects = {
        split: {name for name in NAMES for row in rows if name in json.dumps(row)}
        for split, rows in dataset.rows.items()
    }
    assert not subjects["train"] & subjects["validation"]
    assert list(path.parent.glob("*.part")) == []


def test_a_changed_export_is_noticed(mindful: Mapping[str, str], tmp_path: Path) -> None:
    path = exported(mindful, tmp_path)
    (file,) = tmp_path.glob("*.train.jsonl")
    file.write_text(file.read_text() + '{"instruction": "x", "input": "", "output": "y"}\n')
    with pytest.raises(InvalidInputError, match="not what was exported"):
        read(path)


def test_what_is_no_manifest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("", "[]", "{}", '{"files": {}}'):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match="no manifest"):
            read(path)


def test_errors_are_told(mindful: Mapping[str, str], tmp_path: Path) -> None:
    empty = call(mindful, "replay", "run", SCRIPTED_GENERATOR)
    assert (empty.exit_code, "there are no facts" in empty.output) == (1, True)
    missing = call(mindful, "replay", "export", "77", str(tmp_path))
    assert (missing.exit_code, "no completed replay run 77" in missing.output) == (1, True)
    exported(mindful, tmp_path / "a")
    (tmp_path / "file").write_text("")
    blocked = call(mindful, "replay", "export", "2", str(tmp_path / "file" / "below"))
    assert blocked.exit_code == 1
    assert "cannot write" in blocked.output or "no completed" in blocked.output
