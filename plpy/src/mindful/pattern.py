"""Regular expressions over users' texts. No other module imports re, so that each pattern is measured by a test."""

from __future__ import annotations

import re
from collections.abc import Iterator

IGNORECASE, MULTILINE, VERBOSE, DOTALL = re.IGNORECASE, re.MULTILINE, re.VERBOSE, re.DOTALL

Found = re.Match[str]
Linear = re.Pattern[str]

LINEAR: list[re.Pattern[str]] = []
SHORT: list[Short] = []


def linear(source: str, flags: int = 0) -> Linear:
    """Make a pattern whose time grows with the text, not with its square."""
    made = re.compile(source, flags)
    LINEAR.append(made)
    return made


class Short:
    """A pattern whose time may grow with the square of the text: it finds nothing in a text of more than `longest`."""

    def __init__(self, source: str, longest: int, flags: int = 0) -> None:
        self.longest = longest
        self._pattern = re.compile(source, flags)
        self.pattern = source
        SHORT.append(self)

    def search(self, text: str) -> Found | None:
        """Find the first place of a short text that matches."""
        return self._pattern.search(text) if len(text) <= self.longest else None

    def match(self, text: str) -> Found | None:
        """Match the beginning of a short text."""
        return self._pattern.match(text) if len(text) <= self.longest else None

    def fullmatch(self, text: str) -> Found | None:
        """Match the whole of a short text."""
        return self._pattern.fullmatch(text) if len(text) <= self.longest else None

    def finditer(self, text: str) -> Iterator[Found]:
        """Find all places of a short text that match."""
        return self._pattern.finditer(text) if len(text) <= self.longest else iter(())

    def split(self, text: str) -> list[str]:
        """Split a short text; a longer one stays whole."""
        return self._pattern.split(text) if len(text) <= self.longest else [text]

    def sub(self, replacement: str, text: str) -> str:
        """Replace what matches in a short text; a longer one stays as it is."""
        return self._pattern.sub(replacement, text) if len(text) <= self.longest else text
