"""The version stands in extension/mindful.control and nowhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTROL = Path("extension/mindful.control")
# Records of releases, and what is built.
_OTHERS = re.compile(
    r"CHANGELOG\.md|docs/upgrade\.md|extension/(released/.*|steps/.*|mindful--.*\.sql)|plpy/src/mindful/_version\.py|dist/.*"
)


def version_of(root: Path) -> str:
    found = re.search(r"^default_version = '(.+)'$", (root / CONTROL).read_text(), flags=re.MULTILINE)
    assert found
    return found[1]


def files_that_state(version: str, root: Path) -> list[Path]:
    # A version that is pinned is another package's.
    stated = re.compile(rf"(?<![\d.=]){re.escape(version)}(?![\d.]?\d)")
    return [path for path in _sources(root) if stated.search((root / path).read_text(errors="replace"))]


def _sources(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        if "pyvenv.cfg" in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")) or name == ".ci")
        for name in sorted(names):
            path = (Path(folder) / name).relative_to(root)
            if not _OTHERS.fullmatch(path.as_posix()):
                yield path


def test_only_the_control_file_states_the_version() -> None:
    assert files_that_state(version_of(ROOT), ROOT) == [CONTROL]


def test_another_mention_is_noticed(tmp_path: Path) -> None:
    for name, text in (
        ("extension/mindful.control", "default_version = '1.2.3'\n"),
        ("README.md", "This is mindful 1.2.3."),
        ("a/b.py", '__version__ = "1.2.3"'),
        ("requirements.txt", "other==1.2.3"),
        ("other.txt", "1.2.30 11.2.3 0.1.2.3"),
        (".git/HEAD", "1.2.3"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert version_of(tmp_path) == "1.2.3"
    assert files_that_state("1.2.3", tmp_path) == [Path("README.md"), Path("a/b.py"), CONTROL]
