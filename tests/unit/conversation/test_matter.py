from __future__ import annotations

from typing import Any

import pytest
from mindful.conversation.matter import Common, _kind, asks, asks_whether, is_own, subjects

PUMP = Common(frozenset(("pump",)), 0.4, 0.4)
"""One memory about the same thing."""


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Why did Hilda sell the mill?", True),
        ("Why is Hilda leaving?", True),
        ("How did Hilda break her arm?", True),
        ("How cold is the cellar?", True),
        ("Why is the sky blue?", False),
        ("Why is my code slow?", False),
        ("How do I fix it?", False),
        ("How does Hilda get to work?", True),
        ("How does my aunt drink her tea?", True),
        ("How does Zo\u00eb get to work?", True),
        ("How do Ben and Mia usually get to work?", True),
        ("How does Python take arguments?", False),
        ("How does Hilda's engine work?", False),
        ("How do I get to the airport?", False),
        ("Is Hilda married?", False),
    ],
)
def test_reasons_are_facts_where_they_are_of_deeds_or_of_somebody(question: str, expected: bool) -> None:
    assert asks(question) is expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Is Hilda married?", True),
        ("Did Dr. Moreau sign the lease?", True),
        ("Isn't the pump working?", True),
        ("Do I have a car?", True),
        ("Can you help me?", False),
        ("Is it raining?", False),
        ("Do I need a visa?", False),
        ("Should Hilda sell?", False),
    ],
)
def test_a_yes_or_no_may_be_asked_of_others(question: str, expected: bool) -> None:
    assert asks_whether(question) is expected


def test_a_question_asks_something_of_the_names_after_its_auxiliary() -> None:
    assert subjects("Does Hilda like Ghent?") == {"Hilda"}
    assert subjects("Has Dr. Moreau got children?") == {"Moreau"}
    assert subjects("Which river flows through London?") == set()


class FakeEmbedder:
    """Embeds each example so that a message's margin is 0."""

    name, sha256 = "even", "cafe"

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]


@pytest.mark.parametrize(
    ("question", "common", "expected"),
    [
        ("Is Hilda married?", Common(is_named=True), True),
        ("Who founded the pump?", PUMP, True),  # the pump of a memory
        ("Who founded a pump?", PUMP, False),
        ("Who founded the pump?", Common(), False),
        ("What did I wear?", Common(), True),
        ("What should I wear?", Common(), False),
        ("What was the topic of my essay?", Common(), True),
        ("Do I have a car?", Common(), True),
    ],
)
def test_what_memories_tell_of_makes_a_question_the_users_own(
    question: str, common: Common, expected: bool
) -> None:
    embedder: Any = FakeEmbedder()
    assert is_own(embedder, question, common) is expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Where does Hilda live?", True),
        ("When is Hilda's exam in May?", True),
        ("When was the Hilda founded?", False),
        ("When is Lena's English exam?", True),
        ("Where does Mrs Novak work?", True),
        ("Where did J\u00fcrgen go?", True),
        ("Who painted the Mona Lisa?", False),
        ("Who sank with the ship, the Titanic?", False),
        ("Where is San Marino?", False),
        ("When is Saint Patrick's Day?", False),
        ("What happens in May?", False),
    ],
)
def test_one_name_is_of_somebody_whom_the_user_knows(question: str, expected: bool) -> None:
    assert (_kind(question, Common()) == "person") is expected
