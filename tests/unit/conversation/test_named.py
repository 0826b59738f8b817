from __future__ import annotations

from typing import Any

import pytest
from mindful.conversation.assistant import Change
from mindful.conversation.named import wanted

SETTINGS: dict[str, Any] = {"assistant_changes": True, "chat_memories": 3, "app.units": None}
PROMPTS: dict[str, dict[str, Any]] = {
    "assistant_tone": {"type": "text", "high": None, "choices": ["formal", "friendly"]},
    "assistant_voice": {"type": "text", "high": 200, "choices": None},
    "app.units": {"type": "text", "high": None, "choices": ["metric", "imperial"]},
    "app.depth": {"type": "integer", "low": 1, "high": 9, "choices": None},
    "app.weight": {"type": "number", "low": 0, "high": 1, "choices": None},
    "app.hints": {"type": "boolean", "choices": None},
}


@pytest.mark.parametrize(
    ("message", "key", "value", "scope"),
    [
        ("Set your units to metric.", "app.units", "metric", "session"),
        ("Please set the units setting to Imperial", "app.units", "imperial", "session"),
        ("From now on, set your depth to 5.", "app.depth", 5, "user"),
        ("Change your tone to friendly.", "assistant_tone", "friendly", "session"),
        ("Set your voice to dry and precise.", "assistant_voice", "dry and precise", "session"),
        ("Talk like a pirate.", "assistant_voice", "a pirate", "session"),
        ("From now on, always write in the style of Hemingway.", "assistant_voice", "Hemingway", "user"),
        ("Stop talking like a pirate.", "assistant_voice", None, "session"),
    ],
)
def test_a_setting_that_is_named_is_changed(
    message: str, key: str, value: str | float | None, scope: str
) -> None:
    assert wanted(SETTINGS, PROMPTS, message) == ([Change(key, value, scope, message)], None)


@pytest.mark.parametrize(
    ("key", "said", "value"),
    [
        *(("hints", word, True) for word in ("true", "on", "Yes")),
        *(("hints", word, False) for word in ("false", "off", "NO")),
        ("depth", "1", 1),
        ("depth", "9", 9),
        ("weight", "0", 0),
        ("weight", "0.25", 0.25),
        ("weight", "1.0", 1),
        ("tone", "FORMAL", "formal"),
        ("tone", "\u201cformal\u201d", "formal"),
        ("tone", "'formal'", "formal"),
    ],
)
def test_a_value_is_read_as_its_setting_asks(key: str, said: str, value: str | float) -> None:
    ([change], reply) = wanted(SETTINGS, PROMPTS, f"Set your {key} to {said}.")
    assert reply is None
    assert change.value == value


@pytest.mark.parametrize(
    ("key", "said", "reply"),
    [
        ("depth", "0", "type integer, from 1 to 9"),
        ("depth", "10", "type integer, from 1 to 9"),
        ("depth", "1.5", "type integer, from 1 to 9"),
        ("weight", "1.01", "type number, from 0 to 1"),
        ("weight", "-0.01", "type number, from 0 to 1"),
        ("weight", "nan", "type number, from 0 to 1"),
        ("hints", "maybe", "of type boolean"),
        ("tone", "rude", "formal, friendly"),
    ],
)
def test_a_value_outside_of_its_range_changes_nothing(key: str, said: str, reply: str) -> None:
    changes, answer = wanted(SETTINGS, PROMPTS, f"Set your {key} to {said}.")
    assert changes == []
    assert reply in str(answer)


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ("Set your font size to 12.", 'I have no setting "font size"'),
        ("Can you change the verbosity setting to high, please?", 'I have no setting "verbosity"'),
        ("Set your units to cubits.", "It can be metric, imperial."),
        ("Set your depth to 12.", "from 1 to 9"),
        ("Set your depth to deep.", "from 1 to 9"),
        ("Set your chat_memories to 5.", "setting_set('chat_memories', ...)"),
        ("Set your chat-memories to 5.", "setting_set('chat_memories', ...)"),
        ("Set your units to mètres.", 'cannot be "mètres"'),
    ],
)
def test_what_cannot_be_set_is_answered_honestly(message: str, reply: str) -> None:
    changes, said = wanted(SETTINGS, PROMPTS, message)
    assert (changes, reply in str(said)) == ([], True)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Forget what I told you about the cleaner.", True),
        ("Please forget everything I said.", True),
        ("Delete all my memories!", True),
        ("Forget my address.", True),
        ("Please forget that I like tea.", True),
        ("Forget everything about Anna.", True),
        ("Delete all of my data.", True),
        ("Remove all commas from this text: a, b", False),
        ("Delete all rows of the table ticket.", False),
        ("Erase all the files on my disk with one command.", False),
        ("Forget all that, tell me about Rome.", False),
        ("Forget my last question, what is 2 + 2?", False),
        ("Forget it.", False),
        ("Forget about Monday.", False),
        ("I forgot what I told you.", False),
        ("What did you forget?", False),
    ],
)
def test_a_request_to_forget_gets_an_honest_reply(message: str, expected: bool) -> None:
    changes, said = wanted(SETTINGS, PROMPTS, message)
    assert (changes, "memory_forget" in str(said)) == ([], expected)


@pytest.mark.parametrize(
    "message",
    [
        "Set the alarm to 7.",
        "How do I set your font size to 12?",
        "My brother set your clock to 9. Why?",
        "Speak like that again.",
        "Answer as soon as possible.",
        "What is your font size?",
    ],
)
def test_other_messages_are_left_to_the_model(message: str) -> None:
    assert wanted(SETTINGS, PROMPTS, message) == ([], None)


def test_nothing_is_read_where_the_user_does_not_want_it() -> None:
    assert wanted(SETTINGS | {"assistant_changes": False}, PROMPTS, "Set your depth to 12.") == ([], None)


def test_that_nothing_can_be_forgotten_is_said_whatever_the_assistant_may_change() -> None:
    settings = {**SETTINGS, "assistant_changes": False}
    changes, said = wanted(settings, PROMPTS, "Forget everything you know about me.")
    assert changes == []
    assert "memory_forget" in str(said)
    assert wanted(settings, PROMPTS, "Set your units to metric.") == ([], None)
