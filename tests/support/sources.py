"""The extension's SQL as its files say it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def listed(root: Path = ROOT) -> list[str]:
    """Return the paths below sql/ in the order in which they are loaded."""
    return (root / "sql" / "order.txt").read_text().split()


def install_script(root: Path = ROOT) -> str:
    """Return the installation script, with @VERSION@ where the version goes."""
    return "".join((root / "sql" / path).read_text() for path in listed(root))
