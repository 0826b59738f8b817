"""Libraries of an extra are imported where their lack is an error that names the extra."""

from __future__ import annotations

import ast
import builtins
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mindful.core.errors import MissingPackageError
from mindful.learning.extraction.date import dated
from mindful.learning.extraction.sentence import sentences
from mindful.learning.gate import reasons
from mindful.memory.split import split
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from unit.fakes import FakeDatabase

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "plpy" / "src" / "mindful"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
DISTRIBUTIONS = {"dateutil": "python-dateutil", "llama_cpp": "llama-cpp-python", "referencing": "jsonschema",
                 "stdnum": "python-stdnum"}  # fmt: skip
"""Where a distribution's name is not its package's."""


def distributions(extra: str) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in EXTRAS[extra]}


def imports(tree: ast.AST, extra: str = "server") -> Iterator[tuple[str, str]]:
    """Yield the packages that are imported, each with the extra whose block it stands in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        inner = extra
        if isinstance(node, ast.With):
            for item in node.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "extra":
                    inner = ast.literal_eval(call.args[0])
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], extra) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0], extra
        yield from imports(node, inner)


def test_a_library_is_imported_within_the_block_of_its_extra() -> None:
    ours = {*sys.stdlib_module_names, "mindful", "plpy"}
    found = {
        (package, extra)
        for file in SOURCE.rglob("*.py")
        for package, extra in imports(ast.parse(file.read_text()))
        if package not in ours
    }
    misplaced = {
        (package, extra)
        for package, extra in found
        if canonicalize_name(DISTRIBUTIONS.get(package, package)) not in distributions(extra)
    }
    assert misplaced == set()
    assert {"documents", "learning", "server", "sentence-transformers"} == {extra for _, extra in found}


def chunks(source: str) -> object:
    return split("# A\n\nSome text.", "auto", source, len, 100, 0, FakeDatabase({}))


NEEDING: dict[str, tuple[str, Callable[[], Any]]] = {
    "semantic_text_splitter": ("documents", lambda: chunks("note.txt")),
    "tree_sitter": ("documents", lambda: chunks("note.md")),
    "tree_sitter_markdown": ("documents", lambda: chunks("note.md")),
    "syntok": ("learning", lambda: list(sentences("One. Two.", lambda: None))),
    "dateutil": ("learning", lambda: dated("I moved here yesterday.", __import__("datetime").datetime.now())),
    "detect_secrets": ("learning", lambda: list(reasons("Some text."))),
    "phonenumbers": ("learning", lambda: list(reasons("Some text."))),
    "stdnum": ("learning", lambda: list(reasons("Some text."))),
}


@pytest.mark.parametrize("package", NEEDING)
def test_the_lack_of_a_library_is_an_error_that_names_its_extra(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_module = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return import_module(name, *arguments)

    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(builtins, "__import__", without)
    if package.startswith("tree_sitter_"):
        from mindful.memory import split as module

        module._grammar.cache_clear()
    extra, call = NEEDING[package]
    with pytest.raises(MissingPackageError) as caught:
        call()
    assert caught.value.sqlstate == "0A000"
    assert f"pg-mindful[{extra}]" in str(caught.value.hint)
