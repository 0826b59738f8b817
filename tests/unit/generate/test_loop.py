from __future__ import annotations

import pytest
from mindful.generate.loop import LoopWatch, loop_start


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The spare key is under the blue pot.",
        "ha ha ha ha ha ha",
        "-" * 200,
        "\n".join(f"{number}. item {number}" for number in range(60)),
        "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream.",
    ],
)
def test_an_answer_that_goes_on_is_no_loop(text: str) -> None:
    assert not any(loop_start(text[:end]) for end in range(len(text) + 1))


@pytest.mark.parametrize(
    "unit", ["a city of love and ", "1. ", "I am a helpful assistant.\n", "\U0001f44d\n"]
)
def test_a_loop_is_cut_to_its_first_round(unit: str) -> None:
    watch, text = LoopWatch(), "It is " + unit * 60
    tokens = next(at for at, letter in enumerate(text, 1) if watch.push(letter, at))
    assert tokens < len("It is ") + max(80, 3 * len(unit)) + len(unit)
    tokens = watch.cut()
    assert watch.text.strip() == f"It is {unit}".strip()
    assert tokens == len(watch.text)


@pytest.mark.parametrize("unit", ["a city of love and ", "1. ", "a ", "I am a helpful assistant.\n"])
def test_what_was_shown_of_a_loop_is_what_is_kept(unit: str) -> None:
    watch, shown = LoopWatch(), ""
    for at, letter in enumerate("It is " + unit * 60, 1):
        if watch.push(letter, at):
            break
        shown += watch.show()
    tokens = watch.cut()
    shown += watch.show(ended=True)
    assert shown == watch.text
    assert len(shown) == tokens < len("It is ") + 2 * len(unit)


@pytest.mark.parametrize("text", ["ha ha ha", "banana", "It is. It is. Then it goes on.", "| - | - | - |"])
def test_what_is_held_back_is_shown_at_the_end(text: str) -> None:
    watch, shown = LoopWatch(), ""
    for at, letter in enumerate(text, 1):
        assert not watch.push(letter, at)
        shown += watch.show()
        assert text.startswith(shown)
    assert shown + watch.show(ended=True) == text


def test_of_two_letters_that_repeat_no_more_is_shown_than_the_first_round() -> None:
    watch = LoopWatch()
    watch.push("Row xy", 1)
    watch.push("xy", 2)
    assert watch.show() == "Row xy"
