"""Replies that need no model."""

from __future__ import annotations

import pytest
from mindful.conversation.fixed import fixed
from unit.fakes import FakeDatabase


def told(message: str) -> str | None:
    db = FakeDatabase({"to_char": lambda form: [{"told": form, "zone": "UTC"}]})
    found = fixed(db, message)
    return found and found.text


@pytest.mark.parametrize(
    "message", ["thanks", "Thank you so much!", "cheers mate", "ok thanks for that", "No, thanks"]
)
def test_thanks_are_answered_without_the_model(message: str) -> None:
    assert told(message) == "You are welcome."


@pytest.mark.parametrize(
    "message",
    [
        "What's today's date?",
        "what day is it today",
        "whats the date",
        "Tell me the date please.",
        "What year is it?",
    ],
)
def test_the_server_tells_the_date(message: str) -> None:
    assert "Today is" in str(told(message))


@pytest.mark.parametrize(
    "message", ["What time is it?", "could you tell me what time it is", "what's the time now"]
)
def test_the_server_tells_the_time(message: str) -> None:
    assert str(told(message)).endswith('(UTC)."')


@pytest.mark.parametrize(
    "message",
    [
        "Thanks, can you also tell me a joke?",
        "Thanks to my sister I have a cat.",
        "What is the date of the party?",
        "What day is the dentist?",
        "What time is the meeting?",
        "What time is it in Tokyo?",
        "What day is it on Friday?",
        "date",
        "I have a date today.",
        "",
    ],
)
def test_other_messages_are_left_to_the_model(message: str) -> None:
    assert told(message) is None
