"""Text form of vectors."""

from __future__ import annotations

from collections.abc import Sequence


def to_text(vector: Sequence[float]) -> str:
    """Write a vector in pgvector's text form. 9 digits are enough for every float4."""
    return f"[{','.join([f'{value:.9g}' for value in vector])}]"
