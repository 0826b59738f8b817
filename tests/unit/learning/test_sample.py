"""No text stands behind both what is trained on and what is held out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mindful.learning.sample import _is_held_out, _with_splits


@given(st.lists(st.sets(st.integers(1, 60), max_size=4), max_size=40))
def test_sources_are_in_one_part(sources: list[set[int]]) -> None:
    facts = _with_splits(
        [{"evidence": [{"source_id": source} for source in own], "curated": False} for own in sources]
    )
    parts = {
        split: {
            source
            for fact, own in zip(facts, sources, strict=True)
            if fact["split"] == split
            for source in own
        }
        for split in ("train", "validation")
    }
    assert not parts["train"] & parts["validation"]


def test_what_is_told_once_is_held_out_by_its_source() -> None:
    facts = _with_splits([{"evidence": [{"source_id": source}]} for source in range(1, 1001)])
    assert [fact["split"] == "validation" for fact in facts] == [_is_held_out(at) for at in range(1, 1001)]
    assert 70 < sum(fact["split"] == "validation" for fact in facts) < 140


def test_many_that_hang_together_are_trained_on() -> None:
    held_out = next(source for source in range(1, 100) if _is_held_out(source))
    chain = [
        {"evidence": [{"source_id": held_out + at}, {"source_id": held_out + at + 1}]} for at in range(10)
    ]
    apart = [{"evidence": [{"source_id": 1000 + at}, {"source_id": 2000 + at}]} for at in range(90)]
    splits = [fact["split"] for fact in _with_splits(chain + apart)]
    assert set(splits[:10]) == {"validation"}
    assert set(splits[10:]) == {"train", "validation"}
    assert {fact["split"] for fact in _with_splits(chain)} == {"train"}
