"""mindful train, by the server's Python where that has the extra `train`, on a model of two layers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.cluster import Cluster
from support.command import Command
from support.deletion import delete
from support.files import readable_folder
from support.models import SCRIPTED_EMBEDDER, model_files
from support.training import NAMES, NO_MOUNTS, PACKAGES, exported, tell, unshared
from support.weights import write_truncated

# A process imports PyTorch.
pytestmark = pytest.mark.timeout(900)

MODEL = "truncated"
OPTIONS = ("--epochs", "2", "--batch", "1", "--rank", "4", "--learning-rate", "0.005", "--rehearsed", "2")
TOKENS = 1276
"""Of the vocabulary: Transformers reads a token as slowly as a layer, three times in each training."""


class Server:
    """Starts processes of the server's Python that have imported PyTorch and have mounts of their own."""

    def __init__(self, python: str) -> None:
        self._alone = unshared()
        self._own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [*self._alone, python, str(Path(__file__).with_name("train_server.py")), str(other.fileno())],
                pass_fds=[other.fileno()],
                env=os.environ
                | {"PYTHONPATH": f"{PACKAGES}:{Path(__file__).parents[1]}", "HF_HUB_OFFLINE": "1"},
            )

    @property
    def mounts(self) -> bool:
        """Whether the processes may mount a disk."""
        return bool(self._alone)

    def ask(self, request: Mapping[str, Any], *outputs: int) -> int:
        socket.send_fds(self._own, [json.dumps(request).encode()], outputs)
        answer = self._own.recv(64)
        assert answer, "the server of processes has ended"
        return int(answer)

    def close(self) -> None:
        self._own.close()
        self._process.wait()


class Process:
    """A command that runs in a process of its own."""

    def __init__(self, server: Server, request: Mapping[str, Any]) -> None:
        self._server = server
        pipes = [os.pipe(), os.pipe()]
        self.pid = server.ask(request, *(written for _, written in pipes))
        for _, written in pipes:
            os.close(written)
        self._stdout, self.stderr = (os.fdopen(read) for read, _ in pipes)

    def wait(self) -> tuple[int, str, str]:
        """Return the exit status and what it printed, at the end."""
        with self._stdout, self.stderr:
            stderr, stdout = self.stderr.read(), self._stdout.read()
        return self._server.ask({"wait": self.pid}), stdout, stderr


class Train:
    """Runs mindful train as a process of its own."""

    def __init__(self, server: Server, dsn: str) -> None:
        self._server, self._dsn = server, dsn

    def start(self, *arguments: str | Path, disk: tuple[str, Path] | None = None) -> Process:
        return Process(
            self._server,
            {
                "arguments": ["train", *OPTIONS, *map(str, arguments)],
                "environment": {"MINDFUL_DSN": self._dsn},
                "disk": disk and (disk[0], str(disk[1])),
            },
        )

    def __call__(self, *arguments: str | Path) -> dict[str, Any]:
        status, stdout, stderr = self.start(*arguments).wait()
        assert status == 0, stderr
        return {**json.loads(stdout), "log": stderr}


def wait_for(process: Process, words: str) -> None:
    for line in process.stderr:
        if line.startswith(words):
            return
    pytest.fail(f"it never said {words!r}")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server may read too."""
    with readable_folder() as path:
        yield path


@pytest.fixture(scope="module")
def server(server_python: str) -> Iterator[Server]:
    """What starts processes."""
    extra = "click", "gguf", "peft", "psycopg", "torch", "transformers"
    found = f"import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, {extra})))"
    if subprocess.run([server_python, "-c", found], check=False).returncode:
        pytest.skip("the server's Python has no extra `train`")
    with closing(Server(server_python)) as made:
        yield made


@pytest.fixture
def train(server: Server, mindful: Command) -> Train:
    """The command as ana's."""
    return Train(server, mindful.dsn)


@pytest.fixture(scope="module")
def prepared(
    cluster: Cluster, template: str, roles: Mapping[str, str], server: Server
) -> Iterator[tuple[str, Path]]:
    """A database where ana has told and replayed something, and the folder of its export."""
    with readable_folder() as folder, cluster.database(template) as name:
        with cluster.connect(name) as db, cluster.connect(name, roles["ana"]) as ana:
            base = write_truncated(folder / "small.gguf", model_files(db)["generator"], tokens=TOKENS)
            db.execute("select model_default_set(%s, force => true)", (SCRIPTED_EMBEDDER,))
            db.execute("select model_register(%s, 'generator', 'llama_cpp', %s)", (MODEL, base))
            db.execute("select training_configure(%s, 'chat', 256)", (MODEL,))
            # A model of two layers never ends an answer.
            db.execute("delete from general_question where id > 2")
            tell(ana, NAMES[:4])  # a person is worth six pairs, and a pair a step
        exported(Command(cluster.dsn(name, roles["ana"])), MODEL, folder / "exports")
        yield name, folder / "exports"


@pytest.fixture
def chosen_template(prepared: tuple[str, Path]) -> str:
    """The database whose copy each test gets."""
    return prepared[0]


@pytest.fixture
def manifest(
    db: psycopg.Connection, roles: Mapping[str, str], prepared: tuple[str, Path], folder: Path
) -> Iterator[Path]:
    """A copy of the export of ana's, who may administer models until the test ends: roles outlive it."""
    db.execute(f'grant mindful_admin to "{roles["ana"]}"')
    shutil.copytree(prepared[1], folder / "exports")
    yield next((folder / "exports").glob("*.manifest.json"))
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
    assert (done["base"]["held_out"], done["base"]["general"]) == (done["tuned"]["held_out"], 2)
    assert done["base"]["held_out"] > 0
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
    status, _, stderr = train.start("--name", "tuned", "--output", folder, manifest).wait()
    assert (status, f"{done['file']} exists" in stderr) == (1, True)
    # Another one takes the place of one that was killed. Killed and taken up twice, it becomes the same adapter.
    for name, *said in (
        ("other", "generating"),
        ("resumed", "step 20 of"),
        ("resumed", "resumed at step", "evaluating"),
    ):
        killed = train.start("--name", name, "--output", folder / "again", manifest)
        for words in said:
            wait_for(killed, words)
        os.kill(killed.pid, signal.SIGKILL)
        assert killed.wait()[0] == -signal.SIGKILL
    resumed = train("--name", "resumed", "--output", folder / "again", manifest)
    assert "training on" not in resumed["log"]
    assert "resumed" not in done["log"]
    assert [(status, adapter, error) for _, status, adapter, error in trainings(ana)] == [
        ("completed", "tuned", None),
        ("failed", None, "another training was started in its place"),
        ("completed", "resumed", None),
    ]
    assert (resumed["loss"], resumed["tuned"]) == (done["loss"], done["tuned"])
    assert Path(resumed["file"]).read_bytes() == Path(done["file"]).read_bytes()
    assert {path.name for path in (folder / "again").iterdir()} == {"resumed.gguf"}


def test_what_is_forgotten_while_it_trains_is_not_learned(
    train: Train, manifest: Path, folder: Path, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    process = train.start("--epochs", "1", "--output", folder, manifest)
    wait_for(process, "training on")
    os.kill(process.pid, signal.SIGSTOP)  # it could have ended before the memory is forgotten
    delete(ana, "memory", "kind = 'message' and metadata ->> 'speaker' = 'Tom'")
    os.kill(process.pid, signal.SIGCONT)
    status, _, stderr = process.wait()
    assert status == 1
    assert "pairs of the run were forgotten during the training" in stderr
    ((_, outcome, adapter, error),) = trainings(ana)
    assert (outcome, adapter, "forgotten" in error) == ("failed", None, True)
    assert adapters(db) == []
    assert {path.name for path in folder.iterdir()} == {"exports"}


def test_a_full_disk_fails_the_training_with_its_reason(
    server: Server,
    train: Train,
    manifest: Path,
    folder: Path,
    ana: psycopg.Connection,
    db: psycopg.Connection,
) -> None:
    if not server.mounts:
        pytest.skip(NO_MOUNTS)
    disk = folder / "disk"
    disk.mkdir()
    status, _, stderr = train.start("--output", disk, manifest, disk=("64k", disk)).wait()
    assert status == 1
    assert "No space left on device" in stderr.splitlines()[-2], stderr
    assert "Traceback" not in stderr
    ((_, outcome, adapter, error),) = trainings(ana)
    assert (outcome, adapter, "No space left on device" in error) == ("failed", None, True)
    assert adapters(db) == []


def test_what_cannot_begin_enters_no_training(
    train: Train, manifest: Path, folder: Path, ana: psycopg.Connection
) -> None:
    (folder / "file").write_text("")
    for arguments, words in (
        (("--output", folder / "file" / "below"), "Not a directory"),
        (("--base", folder / "file"), "differs from the registered file of truncated"),
    ):
        status, _, stderr = train.start(*arguments, manifest).wait()
        assert status == 1
        assert words in stderr
        assert "Traceback" not in stderr
    assert trainings(ana) == []
