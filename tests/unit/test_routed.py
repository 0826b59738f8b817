"""The list of tests that do not run through a router."""

from __future__ import annotations

import re

from support.sources import ROOT

LIST = ROOT / "tests" / "router" / "not_routed.txt"


def test_every_test_that_does_not_run_through_a_router_exists_and_has_a_reason() -> None:
    lines = [line for line in LIST.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 200
    wrong = []
    for line in lines:
        name, _, reason = line.partition("  ")
        file, _, test = name.split("[")[0].partition("::")
        path = ROOT / "tests" / file
        if (
            not reason
            or not path.exists()
            or not re.search(rf"^def {test}\b", path.read_text(), re.MULTILINE)
        ):
            wrong.append(line)
    assert wrong == []
