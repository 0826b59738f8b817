"""What fitting's libraries cost a connection, and what applying a calibrator does: imports.py [--write FILE].

Each is imported by a connection of its own, three times; the medians are printed. The server comes from
MINDFUL_TEST_DSN.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import psycopg
from support.cluster import Cluster
from support.markers import put

IMPORTED = {
    "numpy": ("numpy",),
    "all that calibrate imports": ("mindful.confidence.fit", "mindful.confidence.threshold"),
    "all that memory_consolidate imports (rules)": (
        "mindful.learning.consolidation",
        "mindful.learning.extraction.rule",
        "mindful.learning.extraction.date",
        "syntok.segmenter",
        "dateutil.parser",
    ),
    "all that applying a calibrator imports": ("mindful.confidence.calibrator",),
}
MEASURE = """
    create function pg_temp.measure(modules text[]) returns jsonb language plpython3u as $$
    import importlib, json, time
    from mindful.core import process
    before, started = process.private_bytes(), time.perf_counter()
    for name in modules:
        importlib.import_module(name)
    spent = (time.perf_counter() - started) * 1000
    return json.dumps([spent, (process.private_bytes() - before) / 1e6])
    $$
"""
APPLY = """
    create function pg_temp.apply() returns float8 language plpython3u as $$
    import time
    from mindful.confidence.calibrator import Calibrator
    names = [f"signal_{at}" for at in range(20)]
    knots = [at / 50 for at in range(-100, 100)]
    calibrator = Calibrator(names, [0.0] * 20, [1.0] * 20, [0.1] * 20, 0.0, knots, knots)
    signals = {name: 0.5 for name in names}
    started = time.perf_counter()
    for _ in range(1000):
        calibrator.probability(signals)
    return (time.perf_counter() - started) * 1000
    $$
"""


def main() -> None:
    """Measure, print, and write into a page where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="put the table into this file, between its markers")
    arguments = parser.parse_args()
    cluster = Cluster.of_environment()
    with cluster.database() as name:
        with cluster.connect(name) as db:
            db.execute("set client_min_messages = warning")
            db.execute("create extension mindful cascade")
        text = table(cluster, name)
    print(text, end="")
    if arguments.write:
        put(arguments.write, "imports", text)


def table(cluster: Cluster, database: str) -> str:
    """Write the table."""
    lines = ["| a connection imports | ms | private memory |", "|---|---|---|"]
    for what, modules in IMPORTED.items():
        found = [measured(cluster, database, modules) for _ in range(3)]
        ms, megabytes = (statistics.median(values) for values in zip(*found, strict=True))
        lines.append(f"| {what} | {ms:.0f} | {megabytes:.0f} MB |")
    with cluster.connect(database) as db:
        db.execute(APPLY)
        spent = one(db, "select pg_temp.apply()")
    lines += ["", f"Applying a calibrator of 20 signals and 200 knots takes {spent:.0f} us."]
    return "\n".join(lines) + "\n"


def measured(cluster: Cluster, database: str, modules: tuple[str, ...]) -> tuple[float, float]:
    """Milliseconds and megabytes that a new connection spends on importing modules."""
    with cluster.connect(database) as db:
        db.execute(MEASURE)
        row = db.execute("select pg_temp.measure(%s)", (list(modules),)).fetchone()
        assert row is not None
        ms, megabytes = row[0]
        return ms, megabytes


def one(db: psycopg.Connection, query: str) -> float:
    """Return a query's one number."""
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return float(row[0])


if __name__ == "__main__":
    main()
