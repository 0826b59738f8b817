from __future__ import annotations

import pytest
from mindful.conversation.prompt import Context, Part, unframed


@pytest.mark.parametrize(
    ("memory", "reply", "expected"),
    [
        ("Hana studies botany.", "The bakery has two daughters.", True),
        ("Hana studies botany.", "Hana studies botany.", False),
        ("Our bakery has two daughters.", "The bakery has two daughters.", False),
    ],
)
def test_a_reply_about_the_subject_of_the_example_is_none(memory: str, reply: str, expected: bool) -> None:
    context = Context(
        [Part("memory", "user", memory, 5, 1), Part("message", "user", "What does Hana study?", 5)]
    )
    assert context.repeats_example(reply) is expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('I remember: "We heat with wood."', "We heat with wood."),
        ('I remember: "Anna is 9." "Ben is 7."', "Anna is 9. Ben is 7."),
        ('I do not know for sure. I remember: "Tea."', "I do not know."),
        ('"Tea", I remember: he said so.', '"Tea", I remember: he said so.'),
    ],
)
def test_a_later_prompt_has_no_words_around_a_quote(reply: str, expected: str) -> None:
    assert unframed(reply) == expected
