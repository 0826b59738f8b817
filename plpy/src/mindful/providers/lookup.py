"""Prompt lookup: where an answer repeats what stands before, many of its tokens are evaluated at once."""

from __future__ import annotations

from collections.abc import Sequence

_GRAM = 6
"""Tokens that must stand before for what followed them to be guessed again."""
_DOUBTED = 48
"""The most that must stand before, once guesses have failed."""


class Lookup:
    """Guesses the tokens that come next: those that followed the last ones when these stood before.

    What is guessed is evaluated together with the newest token and holds as far as the model chooses the same, so the
    answer does not change. On a processor a batch of 16 takes as long as 8 tokens one by one, so guesses are long and
    rare: each that fails by half doubles what must stand before.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._needed = _GRAM
        self._places: dict[tuple[int, ...], int] = {}
        self._seen = _GRAM
        self._guessed: list[int] = []
        self._right = 0

    def forget(self) -> int:
        """Drop what is guessed; the logits that count are the batch's last."""
        self._guessed = []
        return -1

    def confirm(self, token: int) -> int | None:
        """Return the entry of the batch whose logits follow a token that was guessed; None if it was not."""
        if self._right < len(self._guessed) and self._guessed[self._right] == token:
            self._right += 1
            return self._right
        return None

    def guess(self, context: Sequence[int], room: int) -> list[int]:
        """Guess what follows; at most as many tokens as there is room for."""
        if not self._most:
            return []
        if self._guessed:
            failed = 2 * self._right < len(self._guessed)
            self._needed = min(2 * self._needed, _DOUBTED) if failed else _GRAM
        for end in range(self._seen, len(context)):
            self._places[tuple(context[end - _GRAM : end])] = end
        self._seen = max(self._seen, len(context))
        place = self._places.get(tuple(context[-_GRAM:]), 0)
        stands = place >= self._needed and context[place - self._needed : place] == context[-self._needed :]
        self._right = 0
        # What repeats itself at once, as lists do, is guessed to go round.
        around, length = len(context) - place, min(self._most, room) if stands else 0
        self._guessed = [context[place + at % around] for at in range(length)]
        return self._guessed
