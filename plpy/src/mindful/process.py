"""The memory of this backend's process, as Linux accounts for it."""

from __future__ import annotations

from pathlib import Path


def private_bytes() -> int:
    """Bytes that only this process has: what a further connection of its kind costs."""
    return _field("Private_Clean") + _field("Private_Dirty")


def shared_bytes() -> int:
    """Bytes of this process that others have mapped too, such as the weights of a model."""
    return _field("Shared_Clean") + _field("Shared_Dirty")


def _field(name: str) -> int:
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except FileNotFoundError:  # not Linux
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
