"""The memory of this backend's process, as Linux accounts for it."""

from __future__ import annotations

import contextlib
import ctypes


def private_bytes() -> int:
    """Return the bytes of anonymous memory, which no other process shares."""
    return _status("RssAnon")


def shared_bytes() -> int:
    """Return the bytes of mapped files and shared memory, such as model weights, which processes share."""
    return _status("RssFile") + _status("RssShmem")


def return_free_memory() -> None:
    """Return free heap pages to the operating system. Only glibc has this function."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _status(field: str) -> int:
    try:
        with open("/proc/self/status") as file:
            lines = file.readlines()
    except FileNotFoundError:  # not Linux
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), 0)
