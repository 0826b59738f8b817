"""The memory of this backend's process, as Linux accounts for it."""

from __future__ import annotations

import contextlib
import ctypes
from pathlib import Path


def private_bytes() -> int:
    """Bytes of anonymous memory: what one more connection of this kind costs."""
    return _status("RssAnon")


def shared_bytes() -> int:
    """Bytes mapped from files and of shared memory, such as the weights of a model: there once for all."""
    return _status("RssFile") + _status("RssShmem")


def return_free_memory() -> None:
    """Have the C library give the pages that it keeps for later back to the system, where it is glibc."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _status(field: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except FileNotFoundError:  # not Linux
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)
