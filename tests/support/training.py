"""What there is to be trained on, and disks that are full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import mindful_client
import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.command import Command

NAMES = ["Ana", "Bob", "Eve", "Tom", "Zoe", "Kim", "Max", "Ida", "Leo", "Amy"]
NO_MOUNTS = "this system allows no mounts of a process's own"
PACKAGES = str(Path(mindful_client.__file__).parents[1])


def tell(user: psycopg.Connection, names: Sequence[str] = NAMES) -> None:
    """Have people love olives, and the user consent."""
    messages = [
        {"role": "user", "content": "I love olives.", "metadata": {"speaker": name}} for name in names
    ]
    user.execute("select message_insert_many(session_start(), %s)", (Jsonb(messages),))
    user.execute("select setting_set('training_consent', 'true')")


def enter_adapter(
    db: psycopg.Connection, name: str, base: str, trained_on: dict[str, int], **options: object
) -> str:
    """Enter a scripted generator as if it were the adapter that trainings have made, and return its name."""
    db.execute(
        """insert into model (name, kind, provider, source, options, sha256, base, trained_on, granted_to)
           values (%s, 'generator', 'scripted', %s, %s, %s, %s, %s, '{}')""",
        (name, f"/adapters/{name}.gguf", Jsonb(options), name, base, len(trained_on)),
    )
    db.execute(
        "insert into model_tenant select key, %s, value::bigint from jsonb_each_text(%s)",
        (name, Jsonb(trained_on)),
    )
    return name


def train_stand_in(user: psycopg.Connection, db: psycopg.Connection, name: str, base: str) -> int:
    """Replay what was told, start a training, and have a stand-in for its adapter registered; return its id."""
    user.execute("select memory_consolidate()")
    user.execute("select replay_run(%s, %s)", (base, Jsonb({"level": "information", "again": True})))
    user.execute(
        """select _mindful.training_start(max(id), _mindful.replay_hash(max(id)))
           from consolidation where type = 'replay'"""
    )
    tenant, training = user.execute("select tenant, max(id) from training group by 1").fetchone() or ("", 0)
    enter_adapter(db, name, base, {tenant: training}, default=f"I am {name}.")
    return int(training)


def exported(command: Command, model: str, directory: Path) -> Path:
    """Consolidate, replay, export, and return the manifest."""
    assert command("consolidate").exit_code == 0
    made = command("replay", "run", model, "--level", "information")
    assert made.exit_code == 0, made.output
    done = command("replay", "export", made.output.split()[1].rstrip(":"), directory)
    assert done.exit_code == 0, done.output
    return Path(done.output.strip())


def unshared() -> list[str]:
    """Return the words before a command that give it mounts of its own; no words where the system allows none."""
    # Who is root already need not become it, and keeps what it may do: the server's socket is another user's.
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    alone = ["unshare", *as_root, "--mount"]
    allowed = shutil.which("unshare") and not subprocess.run([*alone, "true"], check=False).returncode
    return alone if allowed else []


def full_disk(size: str, directory: Path, dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where a directory is a disk of this size, which nobody else sees."""
    mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && exec "$@"'
    alone = unshared() or pytest.skip(NO_MOUNTS)
    return subprocess.run(
        [*alone, "sh", "-c", mount, str(directory), sys.executable, "-m", "mindful_client", *arguments],
        env=os.environ | {"MINDFUL_DSN": dsn, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        check=False,
    )
