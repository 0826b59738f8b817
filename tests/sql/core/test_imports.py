"""What is fitted with libraries is applied without them."""

from __future__ import annotations

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
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))  # llama.cpp's binding brings numpy
    label(db, 300)
    db.execute("select calibrate(%s, 0.2)", (SCRIPTED_GENERATOR,))
    assert imported(db) == {"numpy"}
    fresh = connect()
    fresh.execute("select llm_chat('Hi', model => %s, memories => 0)", (SCRIPTED_GENERATOR,))
    decided = fresh.execute("select calibrator_id from decision order by id desc limit 1").fetchone()
    assert decided is not None
    assert decided[0] is not None
    assert imported(fresh) == set()
