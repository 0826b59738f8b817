"""Texts of the server in the client's terminal and report."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from pathlib import Path

import mindful_client.cli
import psycopg
import pytest
from support.command import Command

# To the terminal: clear the screen, set the title, 8-bit CSI and OSC, a carriage return that hides what stood there.
# And the order of characters reversed.
STEERING = "x\x1b[2J\x1b]0;owned\x07 \x9b31m \x9d0;owned\x9c \x7f\x85 \u202edenwo\u2069 \rsafe"
CONTROLS = {
    chr(code)
    for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
} - {"\t", "\n"}


@pytest.fixture
def command(dsn_of: Mapping[str, str]) -> Command:
    return Command(dsn_of["bob"])


def test_control_characters_of_a_memory(
    scripted: None, bob: psycopg.Connection, command: Command, tmp_path: Path
) -> None:
    """Steers the terminal of who prints a memory: recall, JSON, export, chat and errors."""
    bob.execute("select memory_insert(%s, 'document', source => %s)", (STEERING, f"file{STEERING}"))
    bob.execute("select session_start(title => %s)", (STEERING,))
    for words in (
        ("recall", "safe"),
        ("recall", "--json", "safe"),
        ("export", "-"),
        ("ingest", str(tmp_path / f"none{STEERING}"), str(tmp_path)),
        ("chat", "--session", "00000000-0000-0000-0000-000000000000", STEERING),
        ("replay", "run", STEERING),
        ("status",),
    ):
        done = command(*words)
        assert not CONTROLS & set(done.output), (words, done.output)
    exported = json.loads(command("recall", "--json", "safe").stdout)
    assert exported[0]["content"] == STEERING


def test_scripts_in_the_report(
    bob: psycopg.Connection, admin: psycopg.Connection, command: Command, tmp_path: Path
) -> None:
    """Writes HTML where the confidence report shows names and reasons."""
    script = "<script>alert(1)</script>"
    bob.execute(
        """insert into generation (model, model_sha256, temperature, max_tokens, prompt_sha256, prompt_tokens,
               cached_tokens, completion_tokens, finish_reason, total_ms, confidence, signals, token_logprobs)
           values (%s, '', 0, 1, '', 1, 0, 1, 'stop', 1, 0.5, '{}', '{}')""",
        (script,),
    )
    for name in ("report.html", "report.svg"):
        assert command("report", tmp_path / name).exit_code == 0
        text = (tmp_path / name).read_text()
        assert "alert(1)" in text or name == "report.svg"
        assert script not in text


def test_a_module_that_prints_by_itself() -> None:
    """Looks for a command that prints a text without taking its control characters out."""
    for file in Path(mindful_client.cli.__file__).parent.glob("*.py"):
        if file.name == "output.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in {
                    "click.echo",
                    "click.secho",
                    "print",
                    "sys.stdout.write",
                }, f"{file.name}:{node.lineno}"
