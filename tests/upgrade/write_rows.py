"""Keep rows of every table of this version, for the upgrade tests of later ones.

Not a test: `make test PYTEST_ARGS=tests/upgrade/write_rows.py` runs it once, before a release.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
from support.programs import program, run
from upgrade.test_dump_restore import fill
from upgrade.test_upgrade import CURRENT, ROWS

WHAT = ("--column-inserts", "--no-owner", "--no-comments")


def test_write_rows(db: psycopg.Connection, ana: psycopg.Connection, dsn: str) -> None:
    fill(db, ana)
    dump = run(program(db, "pg_dump"), f"--dbname={dsn}", *WHAT)
    for (source,) in db.execute("select source from model where provider = 'llama_cpp'").fetchall():
        dump = dump.replace(source, f"/models/{Path(source).name}")
    kept = [
        line
        for line in dump.replace(ana.info.user, "ana").splitlines()
        if line
        and not line.startswith(("--", "\\", "CREATE SCHEMA mindful", "CREATE EXTENSION"))
        and not line.endswith(" TO ana;")
    ]
    (ROWS / f"{CURRENT}.sql").write_text("\n".join(kept) + "\n")
