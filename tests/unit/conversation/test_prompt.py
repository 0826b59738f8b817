from __future__ import annotations

import pytest
from mindful.conversation.prompt import Context, Part


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
