"""The facts at the beginning of a GGUF file. The package gguf takes a minute for a vocabulary of 262,000 tokens."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of numbers in the form of struct, by their number in the file."""
_TEXT, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")


def facts(file: str) -> Mapping[str, Any]:
    """Return the numbers, texts and arrays of numbers that describe a model. Arrays of texts are left out."""
    with Path(file).open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = _Reader(data)
        _, _, _, count = reader.numbers("IIQQ")
        pairs = [(reader.text(), reader.value()) for _ in range(count)]
    return {key: value for key, value in pairs if value is not None}


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at = data, 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        form = f"<{form}"
        found = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def text(self) -> str:
        [length] = self.numbers("Q")
        self._at += length
        return self._data[self._at - length : self._at].decode(errors="replace")

    def value(self) -> Any:
        [kind] = self.numbers("I")
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY:
            return self.numbers(_NUMBERS[kind])[0]
        inner, count = self.numbers("IQ")
        if inner != _TEXT:
            return list(self.numbers(f"{count}{_NUMBERS[inner]}"))
        for _ in range(count):
            self._at += _LENGTH.size + _LENGTH.unpack_from(self._data, self._at)[0]
        return None
