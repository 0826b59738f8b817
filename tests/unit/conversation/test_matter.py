from __future__ import annotations

from typing import Any

import pytest
from mindful.conversation.matter import (
    _OWN_MATTERS,
    ABOUT,
    BEARS,
    Common,
    _kind,
    _margin,
    asks,
    asks_whether,
    is_own,
    subjects,
)

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


ALIKE = Common(similarity=ABOUT)
"""A memory about the things of the question."""


@pytest.mark.parametrize(
    ("question", "common", "kind"),
    [
        ("What did I wear?", Common(), "done"),
        ("When is my exam?", Common(), "mine"),
        ("Is it ours?", ALIKE, "mine"),
        ("Is it ours?", Common(similarity=ABOUT - 0.01), "own"),
        ("Is it there?", Common(is_named=True), "named"),
        ("Is it ours?", Common(is_named=True), "named"),
        ("Should I buy ours?", Common(), "else"),
        ("Where does Hilda live?", Common(), "person"),
        ("Who founded the pump?", PUMP, "told"),
        ("Who founded the mill?", ALIKE, "certain"),
        ("Who founded the mill?", Common(similarity=ABOUT - 0.01), "else"),
        ("Who founded a pump?", PUMP, "same"),
        ("Who founded a pump?", Common(closest=BEARS), "near"),
        ("Who founded a pump?", Common(closest=BEARS - 0.01), "else"),
        ("Who founded a pump?", Common(), "else"),
    ],
)
def test_a_question_is_of_the_first_kind_that_it_fits(question: str, common: Common, kind: str) -> None:
    assert _kind(question, common) == kind


class Leaning:
    """An embedder to which a question is so much closer to the user's own matters than to others."""

    sha256 = "cafe"

    def __init__(self, margin: float) -> None:
        self.name = f"leaning {margin}"
        self._margin = margin

    def embed(self, texts: list[str]) -> list[list[float]]:
        if len(texts) == 1:
            return [[1.0, 0.0]]
        side = self._margin + 0.5
        return [[side, (1 - side**2) ** 0.5] if text in _OWN_MATTERS else [0.5, 0.75**0.5] for text in texts]


@pytest.mark.parametrize(
    ("question", "common", "least"),
    [
        ("When is my exam?", Common(), -0.1),
        ("Is it there?", Common(is_named=True), -0.05),
        ("What are we?", Common(), 0.0),
        ("Where does Hilda live?", Common(), 0.035),
        ("Who founded the pump?", PUMP, -0.05),
        ("Who founded the mill?", ALIKE, 0.0),
        ("Who founded a pump?", PUMP, 0.03),
        ("Who founded a pump?", Common(closest=BEARS), 0.05),
        ("Who founded a pump?", Common(), 0.08),
    ],
)
def test_each_kind_needs_a_margin_of_its_own(question: str, common: Common, least: float) -> None:
    for margin, own in ((least + 0.002, True), (least - 0.002, False)):
        embedder: Any = Leaning(margin)
        assert is_own(embedder, question, common) is own


def test_the_seven_closest_examples_of_each_kind_count() -> None:
    class Spread(Leaning):
        """Of the user's own matters so many are as near as can be, the others far."""

        def __init__(self, near: int) -> None:
            self.name, self._near = f"spread {near}", near

        def embed(self, texts: list[str]) -> list[list[float]]:
            near = set(_OWN_MATTERS[: self._near])
            return [[1.0, 0.0] if len(texts) == 1 or text in near else [0.0, 1.0] for text in texts]

    for near in range(9):
        embedder: Any = Spread(near)
        assert _margin(embedder, "Who?") == pytest.approx(min(near, 7) / 7)
