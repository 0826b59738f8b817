"""Detection of answers that repeat themselves."""

from __future__ import annotations

_LEAST_REPEATS = 3
_LEAST_LENGTH = 80
"""Characters that the repetitions have together, so that "ha ha ha" and lines of a table are no loop."""
_LONGEST_UNIT = 240


_FIRST_EMOJI = "\U0001f000"


def _counts(letter: str) -> bool:
    """Return whether a repeated text with this character is a loop. Punctuation alone is none: lines of dashes."""
    return letter.isalnum() or letter >= _FIRST_EMOJI


def loop_start(text: str) -> int | None:
    """Return where the second of at least three equal parts begins with which a text ends; None without such parts."""
    for length in range(2, min(_LONGEST_UNIT, len(text) // _LEAST_REPEATS) + 1):
        repeats = max(_LEAST_REPEATS, -(-_LEAST_LENGTH // length))
        # Comparing one character rules most lengths out; this runs for each token.
        if len(text) < repeats * length or text[-1] != text[-1 - length]:
            continue
        unit = text[-length:]
        if text.endswith(unit * repeats) and any(map(_counts, unit)):
            start = len(text) - repeats * length
            while start >= length and text[start - length : start] == unit:
                start -= length
            return start + length
    return None


def _again(text: str) -> int:
    """Return how many characters at the end of a text repeat what is before them, whole units only."""
    most = 0
    for length in range(2, min(_LONGEST_UNIT, len(text) // 2) + 1):
        if text[-1] != text[-1 - length]:
            continue
        unit, repeated = text[-length:], 0
        while text[-repeated - 2 * length : len(text) - repeated - length] == unit:
            repeated += length
        most = max(most, repeated)
    return most


class LoopWatch:
    """Watches an answer as it is made. It checks a text of the length of some repetitions, not all of it."""

    def __init__(self) -> None:
        self.text = ""
        self._shown = 0
        self._marks: list[tuple[int, int]] = []

    def push(self, piece: str, tokens: int) -> bool:
        """Add a piece, after which the answer has this many tokens. Return whether the answer repeats itself."""
        self.text += piece
        self._marks.append((len(self.text), tokens))
        return loop_start(self.text[-_LONGEST_UNIT * _LEAST_REPEATS :]) is not None

    def show(self, *, ended: bool = False) -> str:
        """Return what is new and may be shown: repetitions are held back until the answer goes on."""
        until = len(self.text) - (0 if ended else _again(self.text[-_LONGEST_UNIT * _LEAST_REPEATS :]))
        shown, self._shown = self._shown, max(self._shown, until)
        return self.text[shown : self._shown]

    def cut(self) -> int:
        """End the answer at its first repetition, or at what was shown already. Return its number of tokens."""
        start = loop_start(self.text)
        assert start is not None
        self.text = self.text[: max(start, self._shown)]
        return next(tokens for end, tokens in self._marks if end >= len(self.text))
