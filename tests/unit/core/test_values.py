"""Values are named tuples, and named tuples they stay."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import mindful
import pytest

OWN = {
    "__len__",
    "__iter__",
    "__getitem__",
    "__contains__",
    "__bool__",
    "__eq__",
    "__hash__",
    "count",
    "index",
}
"""What a named tuple has as a tuple, and makes its copies by."""


def named_tuples() -> Iterator[ast.ClassDef]:
    for path in Path(mindful.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and "NamedTuple" in map(ast.unparse, node.bases):
                yield node


@pytest.mark.parametrize("value", list(named_tuples()), ids=lambda value: value.name)
def test_a_named_tuple_is_a_tuple_of_its_fields(value: ast.ClassDef) -> None:
    methods = {part.name for part in value.body if isinstance(part, ast.FunctionDef)}
    fields = {ast.unparse(part.target) for part in value.body if isinstance(part, ast.AnnAssign)}
    assert not OWN & (methods | fields)
