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


@pytest.mark.parametrize("unit", ["a city of love and ", "1. ", "I am a helpful assistant.\n"])
def test_a_loop_is_cut_to_its_first_round(unit: str) -> None:
    watch, text = LoopWatch(), "It is " + unit * 60
    tokens = next(at for at, letter in enumerate(text, 1) if watch.push(letter, at))
    assert tokens < len("It is ") + max(80, 3 * len(unit)) + len(unit)
    kept, tokens = watch.cut()
    assert kept.strip() == f"It is {unit}".strip()
    assert tokens == len(kept)
