"""Texts longer than an embedder's context."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.core.ports import Interrupts, Vector
from mindful.models.parts import embed_whole
from unit.fakes import FakeDatabase


class Words:
    """An embedder of eight words, each a token. Its vectors tell of which letters a text's words begin with."""

    served = False
    dims = 2
    context_length = 10

    def __init__(self) -> None:
        self.read: list[str] = []

    def embed(self, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
        self.read += texts
        return [self._vector(text.split()[:8]) for text in texts]

    def count(self, text: str) -> int:
        return len(text.split())

    def close(self) -> None: ...

    @staticmethod
    def _vector(words: Sequence[str]) -> Vector:
        sea = sum(word.startswith("s") for word in words)
        return [sea / len(words), 1 - sea / len(words)] if words else [1.0, 0.0]


def embed(*texts: str) -> tuple[list[Vector], list[str]]:
    model = Words()
    return embed_whole(model, texts, FakeDatabase()), model.read


def test_a_text_that_fits_is_embedded_as_it_is() -> None:
    assert embed("sea " * 8, "a b") == ([[1.0, 0.0], [0.0, 1.0]], ["sea " * 8, "a b"])


def test_all_parts_of_a_long_text_count_alike() -> None:
    (vector,), read = embed("sea " * 28 + "ant " * 28)
    assert len(read) == 8
    assert vector == pytest.approx([math.sqrt(0.5)] * 2, abs=0.02)


def test_texts_keep_their_order() -> None:
    vectors, _ = embed("fire", "sea " * 40, "fire " * 40, "sea")
    assert vectors == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]


def test_a_huge_text_is_read_at_equal_distances() -> None:
    (vector,), read = embed("sea " * 50_000 + "ant " * 50_000)
    assert sum(len(part.split()) for part in read) < 4 * 2048
    assert vector == pytest.approx([math.sqrt(0.5)] * 2, abs=0.02)


@given(st.text(alphabet="ab \n\u00e9\u6f22", max_size=400))
def test_parts_are_the_text(text: str) -> None:
    vectors, read = embed(text)
    assert "".join(read).split() == text.split()
    assert math.hypot(*vectors[0]) == pytest.approx(1)
