"""A row without columns is an empty tuple, which is false: after "select from t" None alone tells of no row."""

from __future__ import annotations

import ast

import pytest
from support.sources import ROOT

SOURCES = sorted(
    path for folder in ("client", "extension", "tests") for path in (ROOT / folder).rglob("*.py")
)


def _statement(call: ast.Call) -> str:
    """Return the statement of connection.execute(...).fetchone(), as far as it is written there."""
    ran = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "fetchone" else None
    if not isinstance(ran, ast.Call) or not ran.args:
        return ""
    texts = [node.value for node in ast.walk(ran.args[0]) if isinstance(node, ast.Constant)]
    return next((text.lstrip() for text in texts if isinstance(text, str)), "")


def _falsely_asked(source: str) -> list[int]:
    """Return the lines where the truth of a row without columns is asked for."""
    if "fetchone" not in source:  # most files, and a tree takes long to read
        return []
    tree = ast.parse(source)
    compared = {
        id(node.left)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.comparators[0], ast.Constant | ast.Tuple)
    }
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and id(node) not in compared)
    return [call.lineno for call in calls if _statement(call).startswith("select from")]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if db.execute('select from t').fetchone(): pass", [1]),
        ("if db.execute(f'select from {t}').fetchone() is None: pass", []),
        ("while not db.execute('select from t').fetchone(): pass", [1]),
        ("if db.execute('select 1 from t').fetchone(): pass", []),
    ],
)
def test_the_walk_finds_them(source: str, expected: list[int]) -> None:
    assert _falsely_asked(source) == expected


def test_no_code_asks_whether_a_row_without_columns_is_true() -> None:
    assert len(SOURCES) > 200
    found = {
        str(path.relative_to(ROOT)): lines for path in SOURCES if (lines := _falsely_asked(path.read_text()))
    }
    assert found == {}
