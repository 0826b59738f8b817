"""Choosing parts of a prompt by tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mindful.conversation.prompt import ACKNOWLEDGEMENT, OWN, UNKNOWN, UNSURE, Part
from mindful.core.ports import Row

_REFRAINS = (ACKNOWLEDGEMENT, UNKNOWN, UNSURE)
"""Beginnings of replies that are the same to many messages."""
_LONG = 20
"""Characters of a reply that is not given to many messages by right, as "Yes." is."""
_RECENT = 1
"""Replies that are shown even if they are refrains: the message may be about them."""


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


def without_refrains(turns: Iterable[Row]) -> Iterator[Row]:
    """Leave out earlier exchanges, newest first, with a refrain, or the words of a later reply, as the reply.

    A small model goes on with what it said many times: after 16 acknowledged statements it also acknowledged
    "What is 2 + 2?", and after the same address twice it gave the address to every question.
    """
    said: set[str] = set()
    is_left_out = False
    for turn in turns:
        if turn["role"] in OWN:
            reply = turn["content"]
            is_left_out = (reply in said and len(reply) >= _LONG) or (
                len(said) >= _RECENT and reply.startswith(_REFRAINS)
            )
            said.add(reply)
        if not is_left_out:
            yield turn


def from_user(window: list[Part]) -> list[Part]:
    """Drop the oldest parts, at the end of the list, up to a user's: chat templates begin with the user."""
    while window and window[-1].role == "assistant":
        window = window[:-1]
    return window
