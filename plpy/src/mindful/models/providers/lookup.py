"""Prompt lookup: if an answer repeats earlier text, many of its tokens are evaluated at once."""

from __future__ import annotations

from collections.abc import Sequence

_GRAM = 6
"""Number of last tokens that must occur earlier before their continuation is guessed."""
_DOUBTED = 48
"""Upper limit of that number, which grows when guesses fail."""


class Lookup:
    """Guesses the next tokens: those that followed an earlier occurrence of the last ones.

    The guess is evaluated together with the newest token. It counts as far as the model chooses the same tokens, so the
    answer does not change. On a processor a batch of 16 takes as long as 8 single tokens, so guesses are long and rare.
    A guess that is less than half right doubles the number of tokens that must occur earlier.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._needed = _GRAM
        self._places: dict[tuple[int, ...], int] = {}
        self._seen = _GRAM
        self._guessed: list[int] = []
        self._right = 0

    def forget(self) -> int:
        """Drop the guess, and return -1, the entry of the batch's last logits."""
        self._guessed = []
        return -1

    def confirm(self, token: int) -> int | None:
        """Return the batch entry with the logits after a token, or None if the token was not guessed."""
        if self._right < len(self._guessed) and self._guessed[self._right] == token:
            self._right += 1
            return self._right
        return None

    def guess(self, context: Sequence[int], room: int) -> list[int]:
        """Guess the tokens after the context, at most `room`."""
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
        # Text that repeats immediately, as lists do, is guessed to continue repeating.
        around, length = len(context) - place, min(self._most, room) if stands else 0
        self._guessed = [context[place + at % around] for at in range(length)]
        return self._guessed
