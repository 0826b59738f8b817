"""The alarm about a broken budget, as the page describes it."""

from __future__ import annotations

from runpy import run_path

import pytest
from support.sources import ROOT


@pytest.mark.slow
def test_the_page_has_the_tables_of_the_alarm_as_the_bench_prints_them() -> None:
    bench = run_path(str(ROOT / "tests/bench/budget.py"))
    page = (ROOT / "docs/confidence.md").read_text()
    for rows in (bench["alarm_rows"](), bench["unlabeled_rows"]()):
        assert "\n" + "\n".join(rows) + "\n\n" in page
