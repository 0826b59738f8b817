"""Parts of a prompt that fit the room there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mindful.ports import Row
from mindful.prompt import Part


def fitting(parts: Iterable[Part], room: int) -> list[Part]:
    """Take parts, best first, for as long as they fit; one that would never fit hides no other."""
    return first((part for part in parts if part.tokens <= room), room)


def cost(parts: Iterable[Part]) -> int:
    """Add up the tokens of parts."""
    return sum(part.tokens for part in parts)


def turn_of(part: Part, turns: Sequence[Row]) -> int:
    """Tell which turn a part is."""
    return next(int(turn["turn"]) for turn in turns if turn["id"] == part.memory_id)


def first(parts: Iterable[Part], room: int) -> list[Part]:
    """Take the first parts, as many as fit."""
    kept: list[Part] = []
    for part in parts:
        room -= part.tokens
        if room < 0:
            break
        kept.append(part)
    return kept


def from_user(window: list[Part]) -> list[Part]:
    """Drop the oldest parts, the list's last, up to a user's: templates want the user to begin."""
    while window and window[-1].role == "assistant":
        window = window[:-1]
    return window
