"""Packing texts into batches, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def groups(lengths: Sequence[int], capacity: int, most: int) -> Iterator[list[int]]:
    """Pack texts, by index, into batches: like lengths together, at most `capacity` in all and `most` texts."""
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
    """Count what two sequences begin with alike."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))
