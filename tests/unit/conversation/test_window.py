"""Turns that are left out of the prompt."""

from __future__ import annotations

from mindful.conversation.window import without_refrains
from mindful.core.ports import Row


def turns(*said: str) -> list[Row]:
    """Turns, newest first, of texts in their order: what ends with a question mark or "Tea." is the user's."""
    rows: list[Row] = [
        {"role": "user" if text.endswith(("?", "Tea.")) else "assistant", "content": text} for text in said
    ]
    return rows[::-1]


def left(*said: str) -> list[str]:
    return [turn["content"] for turn in without_refrains(turns(*said))][::-1]


def test_earlier_refrains_are_left_out_with_what_they_answer() -> None:
    said = (
        "Tea.",
        "I will remember that.",
        "Why?",
        "Because of rain.",
        "Who?",
        "I do not know.",
        "How?",
        "So.",
    )
    assert left(*said) == ["Why?", "Because of rain.", "How?", "So."]


def test_the_last_reply_stays() -> None:
    said = ("Where?", "I do not know.", "Who?", 'I do not know for sure. I remember: "Tea."')
    assert left(*said) == ["Who?", 'I do not know for sure. I remember: "Tea."']


def test_what_only_begins_alike_is_no_refrain() -> None:
    said = (
        "Who?",
        "I will remember those who came.",
        "Why?",
        "I do not know how, but it does.",
        "How?",
        "So.",
    )
    assert left(*said) == [*said]


def test_a_message_without_reply_stays() -> None:
    assert left("Who?", "I do not know.", "Why?", "So.", "How?") == ["Why?", "So.", "How?"]


def test_of_long_replies_that_are_equal_the_last_stays() -> None:
    place = "The flat is in Graz, on the first floor."
    said = (
        "Where?",
        place,
        "Is it far?",
        "No.",
        "Is it dear?",
        "No.",
        "Where?",
        place,
        "And?",
        place,
        "How?",
    )
    assert left(*said) == ["Is it far?", "No.", "Is it dear?", "No.", "And?", place, "How?"]
