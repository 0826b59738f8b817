"""Packing of texts into batches, and their common beginnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def groups(lengths: Sequence[int], capacity: int, most: int) -> Iterator[list[int]]:
    """Yield batches of text indexes, similar lengths together, of at most `capacity` tokens and `most` texts."""
    group: list[int] = []
    used = 0
    for at in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and (used + lengths[at] > capacity or len(group) == most):
            yield group
            group, used = [], 0
        group.append(at)
        used += lengths[at]
    if group:
        yield group


def common_prefix(left: Sequence[object], right: Sequence[object]) -> int:
    """Return the length of the common beginning of two sequences."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))
