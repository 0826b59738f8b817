"""Consolidation, samples and their export by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from mindful_client.errors import InvalidInputError
from mindful_training.dataset import read
from support import SCRIPTED_GENERATOR
from support.command import Command
from support.training import NAMES, PACKAGES, exported, full_disk, tell


@pytest.fixture(autouse=True)
def told(db: psycopg.Connection, quick: None, ana: psycopg.Connection) -> None:
    """Have a conversation of ana's, and her consent."""
    db.execute("select training_configure(%s, 'chat', lora => '{\"rank\": 8}')", (SCRIPTED_GENERATOR,))
    tell(ana)


def test_consolidate_reads_batch_by_batch(mindful: Command) -> None:
    done = mindful("consolidate", "--batch", "4")
    assert done.exit_code == 0
    assert [line.split(": ")[1] for line in done.output.splitlines()] == [
        "4 texts, 4 facts, 6 texts left",
        "8 texts, 8 facts, 2 texts left",
        "10 texts, 10 facts, 0 texts left",
    ]


@pytest.mark.long
def test_a_killed_run_is_taken_up(mindful: Command, ana: psycopg.Connection) -> None:
    for _ in range(8):
        tell(ana)
    killed = subprocess.Popen(
        [sys.executable, "-u", "-m", "mindful_client", "consolidate", "--batch", "5"],
        env=os.environ | {"MINDFUL_DSN": mindful.dsn, "PYTHONPATH": PACKAGES},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killed.stdout is not None
    assert killed.stdout.readline().startswith("run 1: 5 texts")
    killed.kill()
    killed.communicate()
    ((status, texts),) = ana.execute("select status, memories_processed from consolidation").fetchall()
    assert status == "running"
    assert 5 <= texts < 90
    done = mindful("consolidate")
    assert done.output.splitlines()[-1] == "run 1: 90 texts, 10 facts, 0 texts left"
    assert ana.execute("select status, memories_processed from consolidation").fetchall() == [
        ("completed", 90)
    ]


def test_an_export_has_a_manifest_and_is_split_by_source(mindful: Command, tmp_path: Path) -> None:
    path = exported(mindful, SCRIPTED_GENERATOR, tmp_path / "new")
    told = json.loads(path.read_text())
    assert (told["model"], told["prompt_format"], told["lora"]) == (SCRIPTED_GENERATOR, "chat", {"rank": 8})
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


def test_a_changed_export_is_noticed(mindful: Command, tmp_path: Path) -> None:
    path = exported(mindful, SCRIPTED_GENERATOR, tmp_path)
    (file,) = tmp_path.glob("*.train.jsonl")
    file.write_text(file.read_text() + '{"instruction": "x", "input": "", "output": "y"}\n')
    with pytest.raises(InvalidInputError, match="has changed since the export"):
        read(path)


def test_what_is_no_manifest_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for text in ("", "[]", "{}", '{"files": {}}'):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match="not a manifest"):
            read(path)


def test_a_run_that_fails_says_why(mindful: Command, ana: psycopg.Connection) -> None:
    empty = mindful("replay", "run", SCRIPTED_GENERATOR)
    assert (empty.exit_code, "there are no new facts" in empty.output) == (1, True)
    assert mindful("consolidate").exit_code == 0
    below = mindful("replay", "run", "--level", "knowledge", SCRIPTED_GENERATOR)
    assert (below.exit_code, "no fact passes the thresholds: 10 below level" in below.output) == (1, True)
    assert ana.execute("select status from consolidation where type = 'replay'").fetchall() == [
        ("failed",),
        ("failed",),
    ]


def test_a_model_without_a_prompt_format_is_refused(mindful: Command, db: psycopg.Connection) -> None:
    db.execute("select training_configure(%s, null)", (SCRIPTED_GENERATOR,))
    result = mindful("replay", "run", SCRIPTED_GENERATOR)
    assert (result.exit_code, "has no prompt format" in result.output) == (1, True)


def test_an_export_that_cannot_be_written_leaves_nothing(mindful: Command, tmp_path: Path) -> None:
    missing = mindful("replay", "export", "77", tmp_path)
    assert (missing.exit_code, "no completed replay run 77" in missing.output) == (1, True)
    exported(mindful, SCRIPTED_GENERATOR, tmp_path / "a")
    (tmp_path / "file").write_text("")
    blocked = mindful("replay", "export", "2", tmp_path / "file" / "below")
    assert (blocked.exit_code, "cannot write to" in blocked.output) == (1, True)


def test_an_export_to_a_full_disk_says_so(mindful: Command, tmp_path: Path) -> None:
    exported(mindful, SCRIPTED_GENERATOR, tmp_path / "a")
    done = full_disk("4k", tmp_path, mindful.dsn, "replay", "export", "2", str(tmp_path))
    assert done.returncode == 1
    assert f"cannot write to {tmp_path}: No space left on device" in done.stderr


def test_a_night_writes_new_pairs_with_their_origin_and_records_the_file(
    mindful: Command, ana: psycopg.Connection, tmp_path: Path
) -> None:
    assert mindful("consolidate").exit_code == 0
    first = mindful("replay", "night", tmp_path)
    assert first.exit_code == 0, first.output
    (path,) = tmp_path.iterdir()
    assert first.output.strip() == str(path)
    assert path.name.startswith(f"{SCRIPTED_GENERATOR}-20")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {tuple(line["target_models"]) for line in lines} == {(SCRIPTED_GENERATOR,)}
    assert all(line["meta"]["form"] for line in lines)
    row = ana.execute("select outputs -> 'files' from consolidation where type = 'replay'").fetchone()
    assert row is not None
    assert [(file["file"], file["pairs"]) for file in row[0]] == [(path.name, len(lines))]
    again = mindful("replay", "night", tmp_path)
    assert (again.exit_code, again.output.strip()) == (0, "")
