"""What was released is not changed any more."""

from __future__ import annotations

import hashlib
from pathlib import Path

RELEASED = Path(__file__).parents[2] / "extension" / "released"


def differences(folder: Path) -> list[str]:
    sums = folder / "SHA256SUMS"
    lines = sums.read_text().splitlines() if sums.exists() else []
    recorded = {name: digest for digest, name in (line.split() for line in lines)}
    present = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("mindful--*.sql")
    }
    return sorted(name for name in recorded | present if recorded.get(name) != present.get(name))


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
