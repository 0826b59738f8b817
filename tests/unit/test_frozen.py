"""What was released is not changed any more."""

from __future__ import annotations

import hashlib
from pathlib import Path

from support.sources import install_script
from unit.test_version import version_of

ROOT = Path(__file__).parents[2]
RELEASED = ROOT / "extension" / "released"


def differences(folder: Path) -> list[str]:
    sums = folder / "SHA256SUMS"
    lines = sums.read_text().splitlines() if sums.exists() else []
    recorded = {name: digest for digest, name in (line.split() for line in lines)}
    present = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("mindful--*.sql")
    }
    return sorted(name for name in recorded | present if recorded.get(name) != present.get(name))


def changed_since(root: Path) -> bool:
    """Whether the sources make another script than the one that was released under the current version."""
    version = version_of(root)
    released = root / "extension" / "released" / f"mindful--{version}.sql"
    built = install_script(root).replace("@VERSION@", version)
    return released.exists() and released.read_text() != built


def test_a_released_version_is_built_as_it_was_released() -> None:
    assert not changed_since(ROOT), "raise default_version in extension/mindful.control"


def test_sources_that_changed_after_the_release_are_noticed(tmp_path: Path) -> None:
    for folder in ("sql", "extension/released"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "extension" / "mindful.control").write_text("default_version = '1.2.3'\n")
    (tmp_path / "sql" / "order.txt").write_text("one.sql\ntwo.sql\n")
    (tmp_path / "sql" / "one.sql").write_text("select '@VERSION@';\n")
    (tmp_path / "sql" / "two.sql").write_text("select 2;\n")
    assert not changed_since(tmp_path)
    frozen = tmp_path / "extension" / "released" / "mindful--1.2.3.sql"
    frozen.write_text("select '1.2.3';\nselect 2;\n")
    assert not changed_since(tmp_path)
    frozen.write_text("select '1.2.3';\n")
    assert changed_since(tmp_path)


def test_released_scripts_are_as_they_were_released() -> None:
    assert differences(RELEASED) == []


def test_a_changed_a_removed_and_an_unrecorded_script_are_noticed(tmp_path: Path) -> None:
    names = [f"mindful--0.0.{number}.sql" for number in range(4)]
    for name in names:
        (tmp_path / name).write_text(name)
    sums = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in names[:3]]
    (tmp_path / "SHA256SUMS").write_text("".join(sums))
    assert differences(tmp_path) == names[3:]
    (tmp_path / names[0]).write_text("select 1;")
    (tmp_path / names[1]).unlink()
    assert differences(tmp_path) == [names[0], names[1], names[3]]
