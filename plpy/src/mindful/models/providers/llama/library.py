"""llama.cpp, loaded once per process, without log output, with threads that sleep while they wait."""

from __future__ import annotations

import os

# Waiting threads must sleep, because other connections need the cores. The library reads this when it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# A llama.cpp that aborts runs a debugger where one is installed, and waits for its backtrace, which may never come.
os.environ["GGML_NO_BACKTRACE"] = "1"

import ctypes
import importlib
import importlib.util
import sys
from types import ModuleType


def _bindings() -> ModuleType:
    """Import the C bindings without the package's __init__, whose unused high-level API takes 70 ms.

    The bare package is removed again, because other functions of this interpreter may need the complete one.
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

__all__ = ["ABORTED", "last_error", "llama"]

ABORTED = 2
"""Result of llama_decode after the abort callback stopped it."""

_ERROR_LEVEL = 4
_errors: list[str] = []


@llama.llama_log_callback  # type: ignore[untyped-decorator]
def _log(level: int, text: bytes, _data: ctypes.c_void_p) -> None:
    if level == _ERROR_LEVEL:
        _errors.append(text.decode(errors="replace").strip())
        del _errors[:-1]


def last_error() -> str:
    """Return and delete the last error that llama.cpp logged."""
    return _errors.pop() if _errors else "llama.cpp logged no reason"


llama.llama_log_set(_log, None)
llama.llama_backend_init()
