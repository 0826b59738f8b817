"""llama.cpp as this process has it: loaded once, quiet, and with threads that sleep while they wait."""

from __future__ import annotations

import os

# A database shares its cores: waiting threads must sleep. Both libraries read this when they are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ctypes

import llama_cpp.llama_cpp as llama
import numpy as np

__all__ = ["ABORTED", "last_error", "llama", "np"]

ABORTED = 2
"""What llama_decode returns when the abort callback asked it to stop."""

_ERROR_LEVEL = 4
_errors: list[str] = []


@llama.llama_log_callback  # type: ignore[untyped-decorator]
def _log(level: int, text: bytes, _data: ctypes.c_void_p) -> None:
    if level == _ERROR_LEVEL:
        _errors.append(text.decode(errors="replace").strip())
        del _errors[:-1]


def last_error() -> str:
    """Return and forget the last error that llama.cpp logged."""
    return _errors.pop() if _errors else "no reason given"


llama.llama_log_set(_log, None)
llama.llama_backend_init()
