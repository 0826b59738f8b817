from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.ports import Row
from mindful.providers.scripted import ScriptedGenerator
from mindful.recap import extract, unsupported

GENERATOR = ScriptedGenerator({})


def turn(number: int, content: str, role: str = "user") -> Row:
    return {"id": number, "role": role, "content": content, "content_hash": str(number)}


@given(st.lists(st.text(max_size=60), max_size=8), st.integers(0, 40))
def test_an_extract_quotes_its_turns_in_their_order_and_keeps_to_its_length(
    contents: list[str], length: int
) -> None:
    turns = [turn(at, content) for at, content in enumerate(contents)]
    taken = extract(turns, GENERATOR, length)
    assert all(sentence in said["content"] for said, sentence in taken)
    assert [said["id"] for said, _ in taken] == sorted(said["id"] for said, _ in taken)
    assert sum(GENERATOR.count(f"{said['role']}: {sentence}") for said, sentence in taken) <= length


def test_names_and_numbers_of_the_user_go_before_talk() -> None:
    turns = [
        turn(1, "Hello there! That sounds really great, such fun."),
        turn(2, "Would you like to visit Lisbon in 2024?", "assistant"),
        turn(3, "My sister Clara moved to Porto in 2019."),
    ]
    assert extract(turns, GENERATOR, 14) == [(turns[2], "My sister Clara moved to Porto in 2019.")]


def test_what_is_told_already_is_not_told_again() -> None:
    turns = [turn(1, "Clara moved to Porto."), turn(2, "Clara moved to Porto."), turn(3, "Rex barks.")]
    assert [sentence for _, sentence in extract(turns, GENERATOR, 100)] == [
        "Clara moved to Porto.",
        "Rex barks.",
    ]


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        ("The user's sister Clara moved to Porto.", set()),
        ("She moved in 2019.", set()),
        ("The user's sister Maria moved to Porto.", {"maria"}),
        ("She moved in 2020.", {"2020"}),
        ("Porto's weather is fine.", set()),
    ],
)
def test_names_and_numbers_that_nobody_said_are_found(summary: str, found: set[Any]) -> None:
    assert unsupported(summary, ["My sister Clara moved to Porto.", "It was in 2019."]) == found
