"""Embeddings of texts that are longer than an embedder's context: the mean of those of their parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mindful.core.ports import Embedder, Interrupts, Vector
from mindful.core.vector import unit

_TOKENS = 2048
"""Tokens of a text that are read, about 9,000 characters. It takes the default embedder about a second."""
_FULL = 0.9
"""Share of the context that a part fills on average, as some have more tokens than others."""
_AROUND = 2
"""Special tokens around a text."""
_COUNTED = 1 << 15
"""Characters that are counted. The rest of a text is taken to have as many tokens."""
_BACK = 100
"""Characters in which a part looks for a space to begin at."""


def embed_whole(model: Embedder, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
    """Embed texts as unit vectors. A text longer than the context has the mean of its parts' vectors.

    Of a text with more than 2048 tokens, parts at equal distances are read. On LoCoMo with 30 turns joined to one
    text, the mean finds more than the beginning does: see docs/recall.md.
    """
    cut = [_parts(model, text) for text in texts]
    vectors = iter(model.embed([part for parts in cut for part in parts], interrupts))
    return [_mean([next(vectors) for _ in parts]) for parts in cut]


def _parts(model: Embedder, text: str) -> list[str]:
    """Return the parts of a text that are read, each about as long as the context."""
    room = model.context_length - _AROUND
    if len(text.encode()) <= room:  # no token has less than a byte
        return [text]
    counted = text[:_COUNTED]
    tokens = model.count(counted) * len(text) / len(counted)
    if tokens <= room:
        return [text]
    wanted = math.ceil(tokens / (room * _FULL))
    number = min(wanted, max(1, _TOKENS // model.context_length))
    starts = [_start(text, len(text) * at // number) for at in range(number)]
    ends = [*starts[1:], len(text)]
    most = math.ceil(len(text) / wanted) + _BACK
    parts = [text[start : min(end, start + most)] for start, end in zip(starts, ends, strict=True)]
    return [part for part in parts if part and not part.isspace()] or [text]


def _start(text: str, at: int) -> int:
    """Return the place behind the last space before a place, or that place."""
    space = text.rfind(" ", max(0, at - _BACK), at)
    return at if space < 0 else space + 1


def _mean(vectors: Sequence[Vector]) -> Vector:
    if len(vectors) == 1:
        return vectors[0]
    total = [math.fsum(numbers) for numbers in zip(*vectors, strict=True)]
    try:
        return unit(total)
    except ValueError:
        return vectors[0]
