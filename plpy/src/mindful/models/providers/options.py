"""Checks of a registered model's options, and hashes of its files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from mindful.core.errors import InvalidParameterError
from mindful.core.ports import Interrupts

_LONGEST_CONFIG = 1 << 20


def integer(options: Mapping[str, Any], key: str, default: int, low: int, high: int) -> int:
    """Return an option that is an integer between low and high. Error 22023: it is not."""
    value = options.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidParameterError(
            f"option {key} is {value!r}", f"It must be an integer between {low} and {high}."
        )
    return value


def flag(options: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """Return an option that is true or false. Error 22023: it is neither."""
    value = options.get(key, default)
    if not isinstance(value, bool):
        raise InvalidParameterError(f"option {key} is {value!r}", "Pass true or false.")
    return value


def readable_file(path: str) -> bool:
    """Return whether a path is absolute and names a file that the server can read."""
    try:
        return os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.R_OK)
    except OSError:
        return False


def gguf_file(path: str) -> bool:
    """Return whether a path names a GGUF file that the server can read.

    Other files give the same result as missing ones, so that errors do not reveal which files exist.
    """
    if not readable_file(path):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"GGUF"


def model_folder(path: str) -> bool:
    """Return whether a path names a folder of Hugging Face's form that the server can read.

    Other folders give the same result as missing ones.
    """
    config = f"{path}/config.json"
    if not readable_file(config):
        return False
    with open(config, "rb") as file:
        try:
            told = json.loads(file.read(_LONGEST_CONFIG))
        except (ValueError, RecursionError):
            return False
    return isinstance(told, dict) and isinstance(told.get("model_type"), str)


def file_sha256(path: str, interrupts: Interrupts | None = None) -> str:
    """Return the SHA-256 of a file. It checks for interrupts after each megabyte."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
            if interrupts is not None:
                interrupts.check()
    return digest.hexdigest()


def file_stamp(path: str) -> str:
    """Return a file's size and time of modification, which change when the file is replaced."""
    found = os.stat(path)
    return f"{found.st_size} {found.st_mtime_ns}"


def check_known(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse unknown options and options of a wrong type."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise InvalidParameterError(
            f"there is no option {unknown[0]}", f"The options are {', '.join(known)}."
        )
    for key in ("system_prompt", "layout", "template"):
        if not isinstance(options.get(key, ""), str):
            raise InvalidParameterError(f"option {key} is not a text", "Pass a JSON string.")
    for key in ("example", "acknowledge"):
        flag(options, key)
    if options.get("vector_type", "vector") not in ("vector", "halfvec"):
        raise InvalidParameterError(
            f"option vector_type is {options['vector_type']!r}", 'Pass "vector" or "halfvec".'
        )
    stop = options.get("stop", [])
    if not isinstance(stop, list) or not all(isinstance(text, str) and text for text in stop):
        raise InvalidParameterError("option stop is not an array of texts", 'Pass an array, such as ["\\n"].')
    layout = options.get("layout", "{memories}{message}")
    if "{memories}" not in layout or "{message}" not in layout:
        raise InvalidParameterError(
            "option layout lacks a placeholder", "It must contain {memories} and {message}."
        )
