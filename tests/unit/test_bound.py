"""Limits that stand in SQL and in Python are the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mindful_client.files import LONGEST

SQL = Path(__file__).parents[2] / "sql"


@pytest.mark.parametrize(
    "file", ["core/tenant.sql", "memory/argument.sql", "memory/table.sql", "memory/transfer.sql"]
)
def test_the_client_knows_how_long_a_memory_may_be(file: str) -> None:
    text = (SQL / file).read_text()
    found = re.findall(r"(?:octet_length|pg_column_size)\([^)]+\) (?:>|<=) (\d{6})\b", text)
    assert found
    assert set(found) == {str(LONGEST)}
