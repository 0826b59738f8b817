"""What the table of attacks relies on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FILES = sorted(Path(__file__).parent.glob("test_*.py"))
LEAST = 40


def attacks() -> list[tuple[str, ast.FunctionDef]]:
    """All test functions but this file's."""
    return [
        (f"{file.name}::{node.name}", node)
        for file in FILES
        if file != Path(__file__)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


def test_every_attack_says_in_a_line_what_is_tried() -> None:
    for name, node in attacks():
        line = (ast.get_docstring(node) or "").split("\n")[0]
        assert re.fullmatch(r"[A-Z][a-z]+s\b.*\.?", line), (
            f"{name}: {line!r} does not begin with a verb, as in 'Reads'"
        )


def test_no_attack_is_skipped() -> None:
    for file in FILES:
        if file != Path(__file__):
            assert not re.search(r"\b(skip|skipif|xfail)\b", file.read_text()), file.name


def test_enough_attacks_are_tried() -> None:
    assert len(attacks()) >= LEAST
