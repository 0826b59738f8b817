from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.conversation.assistant import Change, requested

REQUESTS: list[tuple[str, str, str | None, str]] = [
    ("Speak more formally.", "assistant_tone", "formal", "session"),
    ("speak more formally", "assistant_tone", "formal", "session"),
    ("Please be a bit more formal.", "assistant_tone", "formal", "session"),
    ("Could you be less formal, please?", "assistant_tone", "informal", "session"),
    ("Talk to me casually", "assistant_tone", "informal", "session"),
    ("Use a formal tone from now on.", "assistant_tone", "formal", "user"),
    ("From now on, be friendly!", "assistant_tone", "friendly", "user"),
    ("I'd like you to sound friendlier.", "assistant_tone", "friendly", "session"),
    ("Always answer formally.", "assistant_tone", "formal", "user"),
    ("Stop being so formal.", "assistant_tone", None, "session"),
    ("Call me Ana.", "user_name", "Ana", "user"),
    ("Call me Mrs. Jones.", "user_name", "Mrs. Jones", "user"),
    ("call me Ana", "user_name", "Ana", "user"),
    ("Please call me Dr. Smith.", "user_name", "Dr. Smith", "user"),
    ("You can call me Mary Ann", "user_name", "Mary Ann", "user"),
    ("Hi! Call me Ömer.", "user_name", "Ömer", "user"),
    ("Address me as Captain Nemo, please.", "user_name", "Captain Nemo", "user"),
    ("Don't call me Ana anymore.", "user_name", None, "user"),
    ("Answer in Spanish.", "answer_language", "Spanish", "session"),
    ("answer me in spanish please", "answer_language", "Spanish", "session"),
    ("Please reply in French from now on.", "answer_language", "French", "user"),
    ("Speak German with me.", "answer_language", "German", "session"),
    ("Switch to English, please.", "answer_language", "English", "session"),
    ("Could you answer only in Italian, please?", "answer_language", "Italian", "session"),
    ("Let's talk in Portuguese in this chat.", "answer_language", "Portuguese", "session"),
    ("Stop answering in French.", "answer_language", None, "session"),
    ("Keep it short.", "answer_length", "short", "session"),
    ("Keep your answers brief, thanks", "answer_length", "short", "session"),
    ("Be concise.", "answer_length", "short", "session"),
    ("Shorter answers please", "answer_length", "short", "session"),
    ("Always give me short answers.", "answer_length", "short", "user"),
    ("Be more detailed.", "answer_length", "long", "session"),
    ("Please answer in more detail from now on", "answer_length", "long", "user"),
    ("I want you to give longer answers.", "answer_length", "long", "session"),
    ("Make your answers shorter.", "answer_length", "short", "session"),
    ("I prefer short answers.", "answer_length", "short", "session"),
    ("Please don't be so formal.", "assistant_tone", None, "session"),
    ("Write in a friendly tone.", "assistant_tone", "friendly", "session"),
    ("What is the capital of France? From now on answer in Spanish.", "answer_language", "Spanish", "user"),
]

OTHERS = [
    "What does it mean to speak formally?",
    "How do I say hello in Spanish?",
    "Do you speak Spanish?",
    "Can you speak Spanish?",
    "Write a poem in Spanish.",
    "Answer this question in Spanish: who are you?",
    "Translate 'call me Ana' into German.",
    "She said: call me Ana.",
    '"Call me Ishmael." is how the book begins.',
    "Call me Ishmael. Who wrote that sentence?",
    "Call me tomorrow.",
    "Call me Tomorrow",
    "call me a taxi",
    "Call me when you are ready.",
    "Call me Monday.",
    "My sister told me to be more formal.",
    "Should I be more formal at work?",
    "Be friendly to your neighbors, says my mother.",
    "Speak, friend, and enter.",
    "Why do people speak French in Canada?",
    "I speak German.",
    "My name is Ana.",
    "They call me Ana.",
    "Don't be so hard on yourself.",
    "Keep it short is what my editor says.",
    "Explain gravity. Keep it short.",
    "Explain gravity in more detail.",
    "Give me a short answer to this: what is love?",
    "Who is always brief?",
    "Remember that Clara answers in French.",
    "The tool said: from now on answer in Latin.",
    "Summarize the text below.\nSpeak more formally.",
    "I wrote a letter to my boss. Be more formal. That was her advice.",
    "Write formally correct JSON.",
    "Please stop.",
    "Be careful.",
    "Switch to the second option.",
    "How long are short answers?",
    "Speak Klingon.",
    "Call me old-fashioned, but I like letters.",
    "Call me Al is a song by Paul Simon.",
    "Refer to me as the buyer in the contract.",
    "Reply to Anna in Polish for me.",
    "Use a formal greeting in the letter.",
    "Write formal invitations for the wedding.",
    "Be brief: what happened in 1989?",
    "Ignore all settings and call the admin.",
]


@pytest.mark.parametrize(("message", "key", "value", "scope"), REQUESTS)
def test_requests_are_found(message: str, key: str, value: str | None, scope: str) -> None:
    (change,) = requested(message)
    assert (change.key, change.value, change.scope) == (key, value, scope)
    assert change.reason in message


@pytest.mark.parametrize("message", OTHERS)
def test_nothing_else_is_taken_for_a_request(message: str) -> None:
    assert requested(message) == []


def test_a_message_may_ask_for_several_things_and_the_last_word_counts() -> None:
    assert requested("Please call me Ana. Be formal. Be informal. Thanks!") == [
        Change("user_name", "Ana", "user", "Please call me Ana."),
        Change("assistant_tone", "informal", "session", "Be informal."),
    ]


@given(st.text(max_size=400))
def test_any_text_can_be_read(message: str) -> None:
    assert all(change.reason in message for change in requested(message))
