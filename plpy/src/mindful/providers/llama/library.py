"""llama.cpp as this process has it: loaded once, quiet, and with threads that sleep while they wait."""

from __future__ import annotations

import os

# A database shares its cores: waiting threads must sleep. Both libraries read this when they are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ctypes
import importlib
import importlib.util
import sys
from types import ModuleType

import numpy as np


def _bindings() -> ModuleType:
    """Import the C bindings without the package's __init__, whose high-level API costs 70 ms and is not used here.

    The bare package is taken away again: other functions of this interpreter may want the whole of it.
    """
    if "llama_cpp" in sys.modules:
        return importlib.import_module("llama_cpp.llama_cpp")
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None:
        raise ModuleNotFoundError("No module named 'llama_cpp'")
    sys.modules["llama_cpp"] = importlib.util.module_from_spec(spec)
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    finally:
        del sys.modules["llama_cpp"]


llama = _bindings()

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
