"""Regular expressions over users' texts. Only this module imports re, so a test can time every pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

IGNORECASE, MULTILINE, VERBOSE, DOTALL = re.IGNORECASE, re.MULTILINE, re.VERBOSE, re.DOTALL

Found = re.Match[str]
Linear = re.Pattern[str]

CAPITAL = f"[{''.join(filter(str.isupper, map(chr, (*range(0x41, 0x530), *range(0x1E00, 0x1F00)))))}]"
"""An upper-case letter of Latin, Greek or Cyrillic script. re has no class for them."""

LINEAR: list[re.Pattern[str]] = []
SHORT: list[Short] = []


class _Lazy:
    """A pattern that is compiled at its first use: compiling all of them takes a new connection 0.05 s."""

    def __init__(self, source: str, flags: int) -> None:
        self.pattern, self.flags = source, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle look for such before there is a pattern
            raise AttributeError(name)
        made = re.compile(self.pattern, self.flags)
        # Later uses find the compiled pattern's own methods, without a detour.
        for method in ("search", "match", "fullmatch", "findall", "finditer", "split", "sub"):
            setattr(self, method, getattr(made, method))
        return getattr(made, name)


def linear(source: str, flags: int = 0) -> Linear:
    """Return a pattern whose time is linear in the length of the text."""
    made = cast(Linear, _Lazy(source, flags))
    LINEAR.append(made)
    return made


class Short:
    """A pattern whose time may be quadratic. In texts of more than `longest` characters it finds no match."""

    def __init__(self, source: str, longest: int, flags: int = 0) -> None:
        self.longest = longest
        self._pattern = cast(Linear, _Lazy(source, flags))
        self.pattern = source
        SHORT.append(self)

    def search(self, text: str) -> Found | None:
        """Find the first match in a short text."""
        return self._pattern.search(text) if len(text) <= self.longest else None

    def match(self, text: str) -> Found | None:
        """Match at the beginning of a short text."""
        return self._pattern.match(text) if len(text) <= self.longest else None

    def fullmatch(self, text: str) -> Found | None:
        """Match a short text as a whole."""
        return self._pattern.fullmatch(text) if len(text) <= self.longest else None

    def finditer(self, text: str) -> Iterator[Found]:
        """Find all matches in a short text."""
        return self._pattern.finditer(text) if len(text) <= self.longest else iter(())

    def split(self, text: str) -> list[str]:
        """Split a short text; a longer one stays whole."""
        return self._pattern.split(text) if len(text) <= self.longest else [text]

    def sub(self, replacement: str, text: str) -> str:
        """Replace all matches in a short text; a longer text is returned unchanged."""
        return self._pattern.sub(replacement, text) if len(text) <= self.longest else text
