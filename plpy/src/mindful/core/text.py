"""Text between model and database: whole characters, stop strings, characters that PostgreSQL can store."""

from __future__ import annotations

import codecs
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from mindful.core.pattern import linear

_SELDOM_S = 0.01
_ACCENTS = 1 << 10
"""Number of characters decomposed at once."""
_BEFORE_WORD = linear(r"(?<=\S) (?=\S)")

_WORD = linear(r"\w+")
_EMPTY = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "by", "did", "do", "for", "from", "in", "is", "it"}
    | {"of", "on", "or", "s", "that", "the", "they", "to", "was", "were", "with"}
)
"""Stop words."""


def words(text: str) -> list[str]:
    """List the words of a text in lower case, without stop words."""
    return [word for word in _WORD.findall(text.lower()) if word not in _EMPTY]


class TextStream:
    """Turns the bytes of sampled tokens into text that can be returned immediately.

    It keeps the bytes of an incomplete character, and an end that may become a stop string. It drops NUL, which
    PostgreSQL cannot store, and replaces bytes that are not UTF-8 by U+FFFD.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = [text for text in stop if text]
        self._held = ""
        self.stopped = False

    def push(self, piece: bytes) -> str:
        """Add a token's bytes and return the text that is final. Set `stopped` if a stop string is complete."""
        self._held += self._decoder.decode(piece).replace("\0", "")
        found = [at for at in (self._held.find(text) for text in self._stop) if at >= 0]
        if found:
            self.stopped = True
            shown, self._held = self._held[: min(found)], ""
        else:
            keep = max((_overlap(self._held, text) for text in self._stop), default=0)
            cut = len(self._held) - keep
            shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def flush(self) -> str:
        """Return the rest at the end of the text."""
        if self.stopped:
            return ""
        shown, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return shown


def pieces(text: str, longest: int = 1 << 13) -> Iterator[str]:
    """Cut a text into pieces of at most `longest` characters, if possible before a space between two words."""
    begin = 0
    while len(text) - begin > longest:
        end = begin + longest
        found = _BEFORE_WORD.search(text[begin + 1 : end + 1][::-1])
        if found:
            end -= found.start()
        yield text[begin:end]
        begin = end
    yield text[begin:]


def seldom(check: Callable[[], None]) -> Callable[[], None]:
    """Return a check for fast loops, which calls the original one only every 10 ms."""
    last = time.monotonic()

    def look() -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _SELDOM_S:
            last = now
            check()

    return look


def strip_accents(text: str) -> str:
    """Decompose characters and drop their accents, as BERT's uncased tokenizers do (Unicode NFD, category Mn)."""
    if text.isascii():
        return text
    # Sorting a run of accents takes time quadratic in its length.
    decomposed = chain.from_iterable(unicodedata.normalize("NFD", piece) for piece in pieces(text, _ACCENTS))
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that is a proper beginning of the stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
