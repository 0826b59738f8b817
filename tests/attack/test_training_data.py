"""Samples of another tenant."""

from __future__ import annotations

import psycopg
import pytest
from support import SCRIPTED_GENERATOR, fails, one


@pytest.fixture
def run(db: psycopg.Connection, ana: psycopg.Connection) -> int:
    """A replay run of ana, with pairs."""
    db.execute("select training_configure(%s, 'chat')", (SCRIPTED_GENERATOR,))
    ana.execute("select setting_set('training_consent', 'true')")
    ana.execute("select memory_insert('Anna Miller lives in Boston.', 'document')")
    ana.execute("select memory_consolidate()")
    ana.execute('select replay_run(%s, \'{"level": "information"}\')', (SCRIPTED_GENERATOR,))
    found: int = one(ana, "select max(id) from consolidation where type = 'replay'")
    assert ana.execute("select replay_export(%s)", (found,)).fetchall()
    return found


def test_export_of_anothers_samples(run: int, bob: psycopg.Connection) -> None:
    """Exports, hashes and trains on the samples of another tenant's run."""
    for call in ("replay_export(%s)", "_mindful.replay_hash(%s)"):
        try:
            found = bob.execute(f"select {call}", (run,)).fetchall()
        except psycopg.errors.UndefinedObject:
            continue
        assert found in ([], [(None,)]), call
    with pytest.raises(psycopg.Error):
        bob.execute("select _mindful.training_start(%s, 'x')", (run,))
    for table in ("training_sample", "training_sample_memory", "consolidation", "training"):
        assert bob.execute(f"select * from {table}").fetchall() == []


def test_export_to_a_file(run: int, ana: psycopg.Connection) -> None:
    """Exports to a file of the server by COPY, and names a path as a format."""
    with fails("42501", hint=None):
        ana.execute(f"copy (select replay_export({run})) to '/tmp/samples.jsonl'")
    with fails("22023"):
        ana.execute("select replay_export(%s, '/etc/passwd')", (run,))
