"""What there is to be trained on, and disks that are full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import mindful_client
import psycopg
import pytest
from psycopg.types.json import Jsonb

from support.command import Command

NAMES = ["Ana", "Bob", "Eve", "Tom", "Zoe", "Kim", "Max", "Ida", "Leo", "Amy"]
PACKAGES = str(Path(mindful_client.__file__).parents[1])


def tell(user: psycopg.Connection) -> None:
    """Have ten people love olives, and the user consent."""
    messages = [
        {"role": "user", "content": "I love olives.", "metadata": {"speaker": name}} for name in NAMES
    ]
    user.execute("select message_insert_many(session_start(), %s)", (Jsonb(messages),))
    user.execute("select setting_set('training_consent', 'true')")


def exported(command: Command, model: str, directory: Path) -> Path:
    """Consolidate, replay, export, and return the manifest."""
    assert command("consolidate").exit_code == 0
    made = command("replay", "run", model, "--level", "information")
    assert made.exit_code == 0, made.output
    done = command("replay", "export", made.output.split()[1].rstrip(":"), directory)
    assert done.exit_code == 0, done.output
    return Path(done.output.strip())


def full_disk(
    size: str, directory: Path, dsn: str, *arguments: str, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Run the command where a directory is a disk of this size, which nobody else sees."""
    mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && exec "$@"'
    # Who is root already need not become it, and keeps what it may do: the server's socket is another user's.
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    alone = ["unshare", *as_root, "--mount", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("this system lets nobody mount a disk of his own")
    return subprocess.run(
        [*alone, mount, str(directory), python, "-m", "mindful_client", *arguments],
        env=os.environ | {"MINDFUL_DSN": dsn, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        check=False,
    )
