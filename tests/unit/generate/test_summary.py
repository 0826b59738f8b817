"""Texts are joined and cut into parts that fit, and their summaries are summarized again."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from mindful.core.ports import Message
from mindful.generate import summary
from mindful.generate.summary import _LENGTH, _messages, _parts, _pieces
from mindful.models import runtime
from mindful_scripted import ScriptedGenerator
from unit.fakes import FakeDatabase, scripted, wrapped

GENERATOR = ScriptedGenerator({})
WORDS = st.lists(st.text("abc", min_size=1, max_size=6), min_size=1, max_size=80).map(" ".join)


@given(WORDS, st.integers(10, 40))
def test_pieces_are_the_text_and_fit_and_break_between_words(text: str, room: int) -> None:
    pieces = list(_pieces(text, GENERATOR, room))
    assert "".join(pieces) == text
    assert all(0 < GENERATOR.count(piece) <= room - 8 for piece in pieces)
    assert all(piece.endswith(" ") for piece in pieces[:-1]) or GENERATOR.count(text) <= room - 8


def test_a_piece_is_as_long_as_fits_and_ends_after_a_blank() -> None:
    text = " ".join(f"w{at}" for at in range(100))
    first, *rest = _pieces(text, GENERATOR, 28)
    assert GENERATOR.count(first) in (19, 20)
    assert first.endswith(" ")
    assert len(rest) in (4, 5)
    assert list(_pieces("x" * 300, GENERATOR, 28)) == ["x" * 224, "x" * 76]


@given(st.text(max_size=200), st.integers(10, 20))
def test_pieces_of_any_text_are_the_text(text: str, room: int) -> None:
    assert "".join(_pieces(text, GENERATOR, room)) == text


@given(st.lists(WORDS, min_size=1, max_size=12), st.integers(10, 60))
def test_parts_hold_all_texts_in_their_order_and_fit(texts: list[str], room: int) -> None:
    parts = list(_parts(texts, GENERATOR, room))
    assert " ".join(parts).split() == " ".join(texts).split()
    assert all(GENERATOR.count(part) <= room for part in parts)


def test_texts_that_fit_together_are_one_part_between_blank_lines() -> None:
    assert list(_parts(["one two", "three"], GENERATOR, 100)) == ["one two\n\nthree"]
    # Two tokens each: ten of them fit exactly.
    assert [len(part.split()) for part in _parts(["a b"] * 15, GENERATOR, 20)] == [20, 10]
    assert list(_parts([], GENERATOR, 100)) == []


class Prompts(ScriptedGenerator):
    """Keeps what it was asked."""

    def __init__(self, context_length: int = 2048) -> None:
        super().__init__({"context_length": context_length, "default": "It is so."})
        self.asked: list[str] = []

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Encode, and remember the last message."""
        self.asked.append(messages[-1].content)
        return super().encode(messages)


def database() -> FakeDatabase:
    return FakeDatabase(scripted(generator={"default": "It is so."}))


def test_a_prompt_fits_beside_its_answer_and_none_is_half_empty() -> None:
    generator = Prompts(context_length=300)
    db = database()
    spec = runtime.find(db, "generator", None)
    assert summary.summarize(db, spec, generator, ["word " * 600]) == "It is so."
    room = 300 - _LENGTH - len(generator.encode(_messages(summary._SYSTEM, "Summarize this:", "")))
    prompts = [asked for asked in generator.asked if "word" in asked]
    assert 600 / room <= len(prompts) <= 600 / room + 2
    # The summaries of the parts are summarized, all of them in one prompt.
    assert generator.asked[-2].count("It is so.") == len(prompts)
    assert len(db.arguments_of("insert into mindful.generation")) == 2  # a round each


def test_one_part_is_summarized_once() -> None:
    db = database()
    state = ["one", " ", "", "two"]
    assert wrapped(summary.summary_text)(db, state) == "It is so."
    assert len(db.arguments_of("insert into mindful.generation")) == 1


def test_nothing_has_no_summary() -> None:
    for state in (None, [], ["", " \n"]):
        assert wrapped(summary.summary_text)(FakeDatabase({}), state) is None
