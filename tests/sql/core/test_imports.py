"""A connection imports a library when a call needs it, not before."""

from __future__ import annotations

from pathlib import Path

import psycopg
from sql.confidence.test_calibration import label
from support import SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR, Connect

HEAVY = {"numpy", "scipy", "sklearn", "pandas", "torch"}
MODULES = """
    create function pg_temp.modules() returns text[] language plpython3u as $$
    import sys
    return sorted({name.partition(".")[0] for name in sys.modules})
    $$
"""


def imported(connection: psycopg.Connection) -> set[str]:
    connection.execute(MODULES)
    row = connection.execute("select pg_temp.modules()").fetchone()
    assert row is not None
    return HEAVY & set(row[0])


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
