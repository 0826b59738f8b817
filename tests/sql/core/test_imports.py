"""A connection imports a library when a call needs it, not before."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sql.confidence.test_calibration import label
from support import EMBEDDER, GENERATOR, SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR, Connect, fails
from support.dying import dying

HEAVY = {"numpy", "scipy", "sklearn", "pandas", "torch"}
SLOW = {
    "asyncio",
    "dataclasses",
    "email",
    "hmac",
    "http",
    "inspect",
    "ipaddress",
    "logging",
    "pathlib",
    "ssl",
    "subprocess",
    "tempfile",
    "urllib",
}
"""Of the standard library: each takes milliseconds of a new connection's first call."""
REQUESTS = "mindful.models.providers.openai.http"
MODULES = """
    create function pg_temp.modules() returns text[] language plpython3u as $$
    import sys
    return sorted(sys.modules)
    $$
"""


def imported(connection: psycopg.Connection, among: set[str] = HEAVY) -> set[str]:
    connection.execute(MODULES)
    row = connection.execute("select pg_temp.modules()").fetchone()
    assert row is not None
    return among & set(row[0])


def test_applying_a_calibrator_imports_no_library(connect: Connect, db: psycopg.Connection) -> None:
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    label(db, 300)
    db.execute("select calibrate(%s, 0.2)", (SCRIPTED_GENERATOR,))
    assert imported(db) == {"numpy"}
    fresh = connect()
    fresh.execute("select llm_chat('Hi', model => %s, memories => 0)", (SCRIPTED_GENERATOR,))
    decided = fresh.execute("select calibrator_id from decision order by id desc limit 1").fetchone()
    assert decided is not None
    assert decided[0] is not None
    assert imported(fresh) == set()


def test_embedding_and_recall_import_no_library(ana: psycopg.Connection, connect: Connect) -> None:
    ana.execute("select memory_insert('My bike is red.')")
    fresh = connect("ana")
    (found,) = fresh.execute("select content from memory_recall('What color is my bike?', 1)").fetchone() or (
        "",
    )
    assert found == "My bike is red."
    # Ana may not make functions in the language: her backend's own modules are read from its process.
    maps = Path(f"/proc/{fresh.info.backend_pid}/maps").read_text()
    assert "libllama" in maps
    assert "numpy" not in maps


def test_a_first_embedding_imports_little(connect: Connect) -> None:
    fresh = connect()
    fresh.execute("select llm_embed('a text', %s)", (EMBEDDER,))
    # llama.cpp's bindings import typing_extensions, which imports inspect, and pathlib, which imports the others.
    assert imported(fresh, HEAVY | SLOW) <= {"pathlib", "urllib", "ipaddress", "inspect"}


@pytest.mark.parametrize(
    ("kind", "name", "sql", "more"),
    [
        ("embedder", EMBEDDER, "select llm_embed('Hi', %s)", set()),
        ("generator", GENERATOR, "select llm_generate('Hi', %s, max_tokens => 4)", set()),
        # Decisions are mutable. hmac seals kept states.
        ("generator", GENERATOR, "select llm_chat('Hi', model => %s)", {"dataclasses", "inspect", "hmac"}),
    ],
)
def test_a_first_call_of_a_server_imports_little(
    db: psycopg.Connection, connect: Connect, kind: str, name: str, sql: str, more: set[str]
) -> None:
    options = {"model": "m", "server": "llama.cpp", "context_length": 512}
    with tempfile.TemporaryDirectory() as folder:
        served = {
            "address": f"unix:{folder}/s",
            "when_down": "error",
            "options": options | ({"dims": 384} if kind == "embedder" else {}),
        }
        db.execute(
            "update model set options = options || %s where name = %s", (Jsonb({"served": served}), name)
        )
        # The server ends within its answer, so the connection has imported all that a request needs.
        with dying(Path(folder) / "s", "within a body of known length"):
            Path(folder).chmod(0o755)
            Path(folder, "s").chmod(0o777)
            fresh = connect()
            with fails("08006", hint=""):
                fresh.execute(sql.encode(), (name,))
    assert imported(fresh, HEAVY | SLOW | {REQUESTS}) - more == {REQUESTS}
