from __future__ import annotations

import pytest
from mindful.conversation.bearing import Bearing
from mindful.conversation.bridge import named_instead

MASTER = "The harbor master is Birgit Aagaard."


@pytest.mark.parametrize(
    ("question", "held", "memory", "expected"),
    [
        (
            "Where is the harbor master's office?",
            "harbor master's",
            MASTER,
            ("Birgit", "Where is Birgit's office?"),
        ),
        (
            "When does our contact at the customer want a call?",
            "contact customer",
            "Our contact at the customer is Mr. Vandersteen.",
            ("Vandersteen", "When does Vandersteen want a call?"),
        ),
        (
            "In which home does my grandmother live?",
            "grandmother",
            "My grandmother is Hedwig, and she turned 90.",
            ("Hedwig", "In which home does Hedwig live?"),
        ),
        ("What is the harbor master's name?", "harbor master's", MASTER, None),
        ("Where is Birgit's office?", "Birgit's", MASTER, None),
        ("Where is the harbor master's office?", "harbor", "The harbor is closed in winter.", None),
    ],
)
def test_a_name_takes_the_place_of_its_description(
    question: str, held: str, memory: str, expected: tuple[str, str] | None
) -> None:
    found = Bearing(question, "e", "[]", {1: 0.5}, {1: "office?"}, {1: held}, {1: memory})
    assert named_instead(found) == (None if expected is None else (1, *expected))
