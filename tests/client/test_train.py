"""mindful train, by the server's Python where that has the extra `train`, on a model of two layers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.command import Command
from support.deletion import delete
from support.files import readable_folder
from support.training import NAMES, PACKAGES, exported, full_disk, tell

# Each process imports PyTorch, and some tests start three.
pytestmark = pytest.mark.timeout(900)

MODEL = "truncated"
OPTIONS = ("--epochs", "1", "--batch", "1", "--rank", "4", "--learning-rate", "0.005", "--rehearsed", "2")


class Train:
    """Runs mindful train as a process of its own."""

    def __init__(self, python: str, dsn: str) -> None:
        self.python, self._dsn = python, dsn

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.python, "-m", "mindful_client", "train", *OPTIONS, *map(str, arguments)],
            env=os.environ | {"MINDFUL_DSN": self._dsn, "PYTHONPATH": PACKAGES, "HF_HUB_OFFLINE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str | Path) -> dict[str, Any]:
        process = self.start(*arguments)
        stdout, stderr = process.communicate()
        assert process.returncode == 0, stderr
        return {**json.loads(stdout), "log": stderr}


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(words):
            return
    pytest.fail(f"it never said {words!r}")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server may read too."""
    with readable_folder() as path:
        yield path


@pytest.fixture
def train(server_python: str, mindful: Command) -> Train:
    """The command as ana's."""
    extra = "click", "gguf", "peft", "psycopg", "torch", "transformers"
    found = f"import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, {extra})))"
    if subprocess.run([server_python, "-c", found], check=False).returncode:
        pytest.skip("the server's Python has no extra `train`")
    return Train(server_python, mindful.dsn)


@pytest.fixture
def manifest(
    db: psycopg.Connection,
    ana: psycopg.Connection,
    roles: dict[str, str],
    brief_file: str,
    folder: Path,
    mindful: Command,
) -> Iterator[Path]:
    """An export of ana's, who may administer models until the test ends: roles outlive it."""
    db.execute("select model_register(%s, 'generator', 'llama_cpp', %s)", (MODEL, brief_file))
    db.execute("select training_configure(%s, 'chat', 256)", (MODEL,))
    db.execute("delete from general_question where id > 4")  # a model of two layers never ends an answer
    db.execute(f'grant mindful_admin to "{roles["ana"]}"')
    tell(ana, NAMES[:6])  # a person is worth six pairs, and a pair a step
    yield exported(mindful, MODEL, folder / "exports")
    db.execute(f'revoke mindful_admin from "{roles["ana"]}"')


def trainings(user: psycopg.Connection) -> list[Any]:
    return user.execute("select id, status, adapter, error from training order by id").fetchall()


def adapters(db: psycopg.Connection) -> list[Any]:
    return db.execute("select name from model where base is not null").fetchall()


@pytest.mark.long
def test_an_adapter_is_trained_measured_taken_back_and_the_same_after_a_kill(
    train: Train, manifest: Path, folder: Path, ana: psycopg.Connection
) -> None:
    done = train("--name", "tuned", "--output", folder, manifest)
    assert trainings(ana) == [(done["training"], "completed", "tuned", None)]
    assert (done["base"]["held_out"], done["base"]["general"]) == (done["tuned"]["held_out"], 4)
    assert done["tuned"]["taught"] == done["base"]["taught"] > 0
    asked = "select llm_generate('What is something that Tom likes?', model => %s, max_tokens => 8)"
    base, tuned = (ana.execute(asked.encode(), (model,)).fetchone() for model in (MODEL, "tuned"))
    assert base != tuned
    default = "select name from _mindful.model_find('generator', null)"
    before = ana.execute(default).fetchone()
    if done["verdict"].startswith("not active"):
        assert before != ("tuned",)
        ana.execute("select adapter_activate('tuned')")
    assert ana.execute(default).fetchone() == ("tuned",)
    assert ana.execute("select adapter_rollback(%s)", (MODEL,)).fetchone() == ("tuned",)
    assert ana.execute(default).fetchone() == (MODEL,)
    assert {path.name for path in folder.iterdir()} == {"tuned.gguf", "exports"}
    # Killed and taken up, it becomes the same adapter.
    killed = train.start("--name", "resumed", "--output", folder / "again", manifest)
    wait_for(killed, "step 20 of")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert [status for _, status, *_ in trainings(ana)] == ["completed", "running"]
    resumed = train("--name", "resumed", "--output", folder / "again", manifest)
    assert "resumed at step" in resumed["log"]
    assert "resumed" not in done["log"]
    assert [(status, adapter) for _, status, adapter, _ in trainings(ana)] == [
        ("completed", "tuned"),
        ("completed", "resumed"),
    ]
    assert Path(resumed["file"]).read_bytes() == Path(done["file"]).read_bytes()


def test_what_is_forgotten_while_it_trains_is_not_learned(
    train: Train, manifest: Path, folder: Path, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    process = train.start("--output", folder, manifest)
    wait_for(process, "training on")
    delete(ana, "memory", "kind = 'message' and metadata ->> 'speaker' = 'Tom'")
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert "pairs of the run were forgotten during the training" in stderr
    ((_, status, adapter, error),) = trainings(ana)
    assert (status, adapter, "forgotten" in error) == ("failed", None, True)
    assert adapters(db) == []
    assert {path.name for path in folder.iterdir()} == {"exports"}


def test_a_full_disk_fails_the_training_with_its_reason(
    train: Train,
    manifest: Path,
    folder: Path,
    ana: psycopg.Connection,
    db: psycopg.Connection,
    mindful: Command,
) -> None:
    disk = folder / "disk"
    disk.mkdir()
    arguments = ("train", *OPTIONS, "--output", str(disk), str(manifest))
    done = full_disk("64k", disk, mindful.dsn, *arguments, python=train.python)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr.splitlines()[-2], done.stderr
    assert "Traceback" not in done.stderr
    ((_, status, adapter, error),) = trainings(ana)
    assert (status, adapter, "No space left on device" in error) == ("failed", None, True)
    assert adapters(db) == []


def test_what_cannot_begin_enters_no_training(
    train: Train, manifest: Path, folder: Path, ana: psycopg.Connection
) -> None:
    (folder / "file").write_text("")
    for arguments, words in (
        (("--output", folder / "file" / "below"), "Not a directory"),
        (("--base", folder / "file"), "differs from the registered file of truncated"),
    ):
        process = train.start(*arguments, manifest)
        _, stderr = process.communicate()
        assert process.returncode == 1
        assert words in stderr
        assert "Traceback" not in stderr
    assert trainings(ana) == []
