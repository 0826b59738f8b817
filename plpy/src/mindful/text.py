"""Text between model and database: whole characters, whole stop strings, nothing PostgreSQL cannot hold."""

from __future__ import annotations

import codecs
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from mindful.pattern import linear

_SELDOM_S = 0.01
_ACCENTS = 1 << 10
"""Characters that are decomposed at once."""
_BEFORE_WORD = linear(r"(?<=\S) (?=\S)")


class TextStream:
    """Turns the bytes of sampled tokens into text that may be shown at once.

    Bytes of an unfinished character and a tail that may grow into a stop string are held back. NUL, which
    PostgreSQL's text cannot hold, is dropped; bytes that are no UTF-8 become U+FFFD.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = [text for text in stop if text]
        self._held = ""
        self.stopped = False

    def push(self, piece: bytes) -> str:
        """Add a token's bytes and return what may be shown now; sets `stopped` when a stop string is complete."""
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
        """Return what is still held back, at the end of a text."""
        if self.stopped:
            return ""
        shown, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return shown


def pieces(text: str, longest: int = 1 << 13) -> Iterator[str]:
    """Cut a text into pieces of at most so many characters, before a blank between two words where there is one."""
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
    """Return a check for loops that turn fast: it looks every few milliseconds only."""
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
    # To put a run of accents into order takes the square of its length.
    decomposed = chain.from_iterable(unicodedata.normalize("NFD", piece) for piece in pieces(text, _ACCENTS))
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins, but is not, the stop string."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
