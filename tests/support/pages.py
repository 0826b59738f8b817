"""The pages for readers, and the code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from support.sources import ROOT

NOTES = sorted((ROOT / "sql").glob("*/*.md"))
"""The pages beside SQL files: what `make reference` puts under an object's COMMENT."""
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *NOTES]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """List the page's blocks of code in a language."""
    return [text for name, text in _BLOCK.findall(page.read_text()) if name == language]


def sections(page: Path) -> dict[str, str]:
    """Map each heading of the second level to the text below it."""
    _, *parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def code(page: Path) -> Iterator[str]:
    """Yield what a page says in backticks and in blocks of code, without a changelog's older versions."""
    text = page.read_text()
    if page.name == "CHANGELOG.md":
        text = "".join(text.partition("\n## ")[:2]) + text.partition("\n## ")[2].partition("\n## ")[0]
    yield from (block for _, block in _BLOCK.findall(text))
    yield from re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text))
