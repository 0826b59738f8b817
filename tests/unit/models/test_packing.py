"""Packing texts into micro-batches."""

from hypothesis import given
from hypothesis import strategies as st
from mindful.models.providers.packing import groups

lengths = st.lists(st.integers(1, 50))


@given(lengths, st.integers(50, 200), st.integers(1, 8))
def test_every_text_is_in_one_group_that_fits(lengths: list[int], capacity: int, most: int) -> None:
    packed = list(groups(lengths, capacity, most))
    assert sorted(at for group in packed for at in group) == list(range(len(lengths)))
    assert all(0 < len(group) <= most for group in packed)
    assert all(sum(lengths[at] for at in group) <= capacity for group in packed)


def test_like_lengths_go_together() -> None:
    assert list(groups([9, 1, 8, 2], 17, 8)) == [[1, 3, 2], [0]]
