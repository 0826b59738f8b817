"""Choosing parts of a prompt by tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mindful.conversation.prompt import Part
from mindful.core.ports import Row


def fitting(parts: Iterable[Part], room: int) -> list[Part]:
    """Take parts, best first, until one does not fit; skip those larger than the whole room."""
    return first((part for part in parts if part.tokens <= room), room)


def cost(parts: Iterable[Part]) -> int:
    """Return the sum of the tokens of parts."""
    return sum(part.tokens for part in parts)


def turn_of(part: Part, turns: Sequence[Row]) -> int:
    """Return the turn of a part."""
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
    """Drop the oldest parts, at the end of the list, up to a user's: chat templates begin with the user."""
    while window and window[-1].role == "assistant":
        window = window[:-1]
    return window
