"""What the set-up installs is pinned by version and sum."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "extension" / "setup"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
LOCKS = {
    "server": ("server", "llama"),
    "documents": ("documents",),
    "learning": ("learning",),
    "reference": ("reference", "torch"),
    "train": ("train", "torch"),
    "client": ("dev",),
    "dev": ("dev",),
    "models": ("models",),
    "engine-test": ("engine-test",),
}
"""By extra: the files that pin what it asks for."""


def entries(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and sums of each package in a lock file."""
    text = (SETUP / "lock" / f"{name}.txt").read_text().replace("\\\n", " ")
    found: dict[str, tuple[str, list[str]]] = {}
    for line in text.splitlines():
        package, version = re.match(r"([^=\s]+)==([^\s;]+)", line).groups()  # type: ignore[union-attr]
        found[canonicalize_name(package)] = version, re.findall(r"--hash=sha256:[0-9a-f]{64}", line)
    return found


def asked(extra: str) -> list[Requirement]:
    """Requirements of an extra, with those of the extras that it names."""
    found = []
    for requirement in map(Requirement, EXTRAS[extra]):
        if requirement.name == "pg-mindful":
            found += [part for name in requirement.extras for part in asked(name)]
        else:
            found.append(requirement)
    return found


@pytest.mark.parametrize("extra", LOCKS)
def test_every_requirement_is_pinned(extra: str) -> None:
    pinned = {package: entry for name in LOCKS[extra] for package, entry in entries(name).items()}
    for requirement in asked(extra):
        version, _ = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is {version}: run make lock"


def test_every_pin_has_a_sum() -> None:
    for file in (SETUP / "lock").glob("*.txt"):
        for package, (_, sums) in entries(file.stem).items():
            assert sums, f"{file.name}: {package}"


def test_pins_of_a_package_agree() -> None:
    versions: dict[str, str] = {}
    for file in (SETUP / "lock").glob("*.txt"):
        if file.stem == "clients":  # in a venv of their own, so that other versions are tried
            continue
        for package, (version, _) in entries(file.stem).items():
            assert versions.setdefault(package, version) == version, f"{file.name}: {package}"


def test_nothing_is_installed_without_a_sum() -> None:
    script = (SETUP / "python.sh").read_text().replace("\\\n", " ")
    for line in script.splitlines():
        if re.search(r'pip" (install|download|wheel)', line):
            own = "--no-build-isolation" in line and "-r" not in line.split()
            local = "/*.whl" in line
            assert "--require-hashes" in line or own or local, line
