"""mindful models: the registry of models from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from support import GENERATOR, SCRIPTED_GENERATOR
from support.command import Command
from support.misbehaving import Server, misbehaving


@pytest.fixture
def server() -> Iterator[Server]:
    with misbehaving() as running:
        yield running


@pytest.fixture
def as_admin(
    dsn_of: Mapping[str, str], db: psycopg.Connection, roles: Mapping[str, str]
) -> Iterator[Command]:
    """An administrator who is a user too: only users run models."""
    role = sql.Identifier(roles["admin"])
    db.execute(sql.SQL("grant mindful_user to {}").format(role))
    yield Command(dsn_of["admin"])
    db.execute(sql.SQL("revoke mindful_user from {}").format(role))


def test_models_are_listed_with_where_they_are(mindful: Command) -> None:
    shown = mindful("models", "list").stdout
    assert f"* {GENERATOR}" in shown
    assert "llama_cpp" in shown
    assert "2048 tokens" in shown
    assert "apache-2.0" in shown


def test_a_server_is_added_tested_and_made_the_default(
    mindful: Command, as_admin: Command, server: Server
) -> None:
    added = as_admin("models", "add", "far", server.source("ok"), "--option", "context_length=512")
    assert added.exit_code == 0, added.output
    assert "512" in added.stdout
    assert "read the terms" in added.stdout
    assert re.search(r"answer +\d+ ms", added.stdout)
    assert "tokens around a message" in added.stdout
    assert "log-probabilities    of the likeliest tokens" in added.stdout
    # What will not work is said, with the reason.
    assert "grammar              does not work: " in added.stdout
    assert as_admin("models", "default", "far").exit_code == 0
    assert "* far" in mindful("models", "list").stdout


def test_a_model_is_ranked_by_questions_with_progress(
    mindful: Command, as_admin: Command, quick: None, tmp_path: Path
) -> None:
    gold = tmp_path / "gold.json"
    known = [{"question": "What is the capital of France?", "answers": [city]} for city in ("Paris", "Rome")]
    gold.write_text(json.dumps(known * 20))
    ranked = ("models", "calibrate", SCRIPTED_GENERATOR, "--gold", str(gold), "--signal-tier", "0")
    done = as_admin(*ranked)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, "40 of 40 questions answered, 20 rightly")
    refused = mindful(*ranked)
    assert refused.exit_code == 1
    assert "permission denied" in refused.stderr


def test_only_administrators_add_models(mindful: Command, server: Server) -> None:
    refused = mindful("models", "add", "far", server.source("ok"))
    assert refused.exit_code == 1
    assert "permission denied" in refused.stderr
    assert mindful("models", "test", "nothing").exit_code == 1
