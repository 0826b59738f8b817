"""PostgreSQL's own programs, of the server's major version."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest


def program(connection: psycopg.Connection, name: str) -> str:
    """Find a program of the server's major version; pg_dump refuses a newer server."""
    major = connection.info.server_version // 10000
    for config in (f"/usr/lib/postgresql/{major}/bin/pg_config", shutil.which("pg_config")):
        if config and Path(config).exists() and run(config, "--version").split()[1].startswith(str(major)):
            return str(Path(run(config, "--bindir").strip()) / name)
    pytest.fail(f"{name} of PostgreSQL {major} is not installed", pytrace=False)


def run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a program, and return what it prints."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | dict(environment or {})
    )
    assert done.returncode == 0, f"{command[0]}: {done.stderr}"
    return done.stdout
