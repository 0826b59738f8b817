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
    ("message", "reply"),
    [
        ("Set your font size to 12.", 'I have no setting "font size"'),
        ("Can you change the verbosity setting to high, please?", 'I have no setting "verbosity"'),
        ("Set your units to cubits.", "It can be metric, imperial."),
        ("Set your depth to 12.", "from 1 to 9"),
        ("Set your depth to deep.", "from 1 to 9"),
        ("Set your chat_memories to 5.", "setting_set('chat_memories', ...)"),
    ],
)
def test_what_cannot_be_set_is_answered_honestly(message: str, reply: str) -> None:
    changes, said = wanted(SETTINGS, PROMPTS, message)
    assert (changes, reply in str(said)) == ([], True)


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
