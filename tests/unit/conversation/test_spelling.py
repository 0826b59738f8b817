"""Messages that were typed without apostrophes."""

from __future__ import annotations

import pytest
from mindful.conversation.spelling import spelled


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("whats my mums name", "what's my mum's name"),
        ("whens jess's birthday", "when's jess's birthday"),
        ("im rhys and ive got a ferret", "i'm rhys and i've got a ferret"),
        ("dont you know, it wont work", "don't you know, it won't work"),
        ("cant have penicillin", "can't have penicillin"),
        ("its the 20th, not the 19th", "it's the 20th, not the 19th"),
        ("no its 4417", "no it's 4417"),
        ("whats my nans 80th", "what's my nan's 80th"),
        ("waht is teh code", "what is the code"),
        ("Wahts my mums name", "what's my mum's name"),
        ("whre do i live?", "where do i live?"),
        ("theyre here, lets go", "they're here, let's go"),
    ],
)
def test_apostrophes_are_put_where_they_belong(message: str, expected: str) -> None:
    assert spelled(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        "its name is Rex",
        "my sisters live in Leeds",
        "we were ill, whose idea was that",
        "What's this? It's his, that's all.",
        "the ones with no cants",
        "our neighbours and their dogs",
    ],
)
def test_other_words_stay_as_they_are(message: str) -> None:
    assert spelled(message) == message
