"""What takes minutes: a thousand answers in one connection, and cancels at any moment of forgetting."""

from __future__ import annotations

import os
import random
from pathlib import Path

import psycopg
import pytest
from support import fails, one
from support.clock import within
from support.forgetting import forget

pytestmark = pytest.mark.skipif("MINDFUL_TEST_ENDURANCE" not in os.environ, reason="takes minutes")

ANSWERS = 1000
CANCELS = 40
TABLES = (
    "memory",
    "memory_term",
    "memory_count",
    "memory_embedding_all_minilm_l6_v2",
    "session",
    "forget_receipt",
)


def anonymous_mb(pid: int) -> float:
    """Memory of a process that no file backs."""
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    )
    return int(fields["Anonymous"].split()[0]) / 1024


@pytest.mark.timeout(1800)
def test_a_thousand_answers_take_no_more_memory_than_fifty(ana: psycopg.Connection) -> None:
    pid = ana.info.backend_pid
    for n in range(ANSWERS):
        ana.execute("select llm_generate(%s, max_tokens => 8, seed => %s)", (f"Say a number near {n}.", n))
        if n == 49:
            before = anonymous_mb(pid)
    after = anonymous_mb(pid)
    print(f"\n{ANSWERS} answers: {before:.1f} MB after 50, {after:.1f} MB at the end")
    assert after - before < 20


def test_a_cancel_at_any_moment_forgets_nothing(ana: psycopg.Connection, db: psycopg.Connection) -> None:
    db.execute("set row_security = off")  # no model is to embed these
    db.execute(
        """insert into mindful.memory (tenant, content)
           select %s, 'Number ' || n || ' of many things' from generate_series(1, 5000) n""",
        (ana.info.user,),
    )
    rows = " union all ".join(f"select '{table}', count(*) from mindful.{table}" for table in TABLES)
    before = db.execute(rows.encode()).fetchall()
    choice = random.Random(7)
    for _ in range(CANCELS):
        limit = choice.uniform(0.005, 0.4)
        ana.execute(f"set statement_timeout = {round(limit * 1000)}")
        for clock in within(0.2):
            clock.start(after_s=limit)
            with fails("57014", hint=None):
                ana.execute("select memory_forget(everything => true)")
            clock.stop()
            assert db.execute(rows.encode()).fetchall() == before
    ana.execute("reset statement_timeout")
    assert forget(ana, "everything => true")["memory", "deleted"] == 5000
    assert one(ana, "select count(*) from memory") == 0
