"""Options of a registered model, checked; and the identity of its files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mindful.errors import InvalidParameterError


def integer(options: Mapping[str, Any], key: str, default: int, low: int, high: int) -> int:
    """Read a whole number between two bounds."""
    value = options.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidParameterError(
            f"option {key} is {value!r}", f"It must be a whole number between {low} and {high}."
        )
    return value


def readable_file(path: str) -> bool:
    """Tell whether a path is absolute and leads to a file that the server may read."""
    try:
        return Path(path).is_absolute() and Path(path).is_file() and os.access(path, os.R_OK)
    except OSError:
        return False


def gguf_file(path: str) -> bool:
    """Tell whether a path leads to a GGUF file that the server may read.

    Errors tell no other file from one that is not there.
    """
    if not readable_file(path):
        return False
    with Path(path).open("rb") as file:
        return file.read(4) == b"GGUF"


def file_sha256(path: str) -> str:
    """Hash a file's contents."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_stamp(path: str) -> str:
    """Tell a file from what it was before it was replaced, without reading it: its size and time of change."""
    found = Path(path).stat()
    return f"{found.st_size} {found.st_mtime_ns}"


def check_known(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse options that nothing would read."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidParameterError(f"there is no option {unknown[0]}", f"Options are {', '.join(known)}.")
    for key in ("system_prompt", "layout", "template"):
        if not isinstance(options.get(key, ""), str):
            raise InvalidParameterError(f"option {key} is no text", "Give a JSON string.")
    stop = options.get("stop", [])
    if not isinstance(stop, list) or not all(isinstance(text, str) and text for text in stop):
        raise InvalidParameterError("option stop is no array of texts", 'Give an array, such as ["\\n"].')
    layout = options.get("layout", "{memories}{message}")
    if "{memories}" not in layout or "{message}" not in layout:
        raise InvalidParameterError(
            "option layout lacks a placeholder", "It must hold {memories} and {message}."
        )
