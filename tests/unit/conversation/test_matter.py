from __future__ import annotations

from typing import Any

import pytest
from mindful.conversation.matter import (
    _LEAST,
    _OWN_MATTERS,
    _WEIGHTS,
    Common,
    _log_odds,
    _margin,
    _signs,
    asks,
    asks_whether,
    is_general,
    is_own,
    may_ask,
)


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
        ("How is my cat named?", True),
        ("How is Hilda's horse called?", True),
        ("How was our roof repaired?", True),
        ("How is a roof repaired?", False),
        ("How is my cat?", False),
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


@pytest.mark.parametrize(
    "question",
    [
        "What is a boiler?",
        "What's a good violin?",
        "So what is rent?",
        "What are bees?",
        "What is compound interest?",
        "What does a nurse do?",
        "What do hamsters eat?",
        "How do bees make honey?",
        "How does a diesel engine work?",
        "How tall is a birch tree?",
        "How is honey made?",
        "What is a password?",
        "who discovered penicillin?",
        "Who invented radio?",
        "what is 60 divided by 4",
        "What is 12 * 12?",
        "I paid 45 for petrol and 120 for groceries, how much is that together?",
        "A shirt costs 40 pounds and is 25% off. What do I pay?",
        "If a film starts at 7 and lasts 2 hours, when does it end?",
    ],
)
def test_a_question_about_a_kind_of_things_is_general(question: str) -> None:
    assert is_general(question)


@pytest.mark.parametrize(
    "question",
    [
        "What is the boiler called?",
        "What is my rent?",
        "What is for dinner?",
        "What is planned?",
        "What is wrong?",
        "What is wifi password?",
        "What are office hours?",
        "What is grandma called?",
        "What is a password of mine?",
        "How old is grandpas cat?",
        "How do guests get in?",
        "What was lunch?",
        "What is Ruth allergic to?",
        "What is due tomorrow?",
        "Who has a boat?",
        "Who keeps bees?",
        "How much is a guitar lesson?",
        "How much does a guitar lesson cost?",
        "How is the cat?",
        "How do we pay the cleaner?",
        "When do guests arrive?",
        "How much did I pay for order 77 on May 3?",
        "On May 3 at 10, what did I promise Anna?",
        "I have 3 cats and 2 dogs. What are they called?",
    ],
)
def test_a_question_about_a_certain_thing_is_not_general(question: str) -> None:
    assert not is_general(question)


@pytest.mark.parametrize(
    ("question", "is_named", "manner", "duty"),
    [
        ("Why do we not use the back door?", False, True, False),
        ("How do we pay the gardener?", False, True, False),
        ("Why isn't Lena coming?", True, True, False),
        ("Do we need to bring anything on Friday?", False, False, True),
        ("Do I have to call Ruth back?", True, False, True),
        ("Should we bring anything to the party?", False, False, True),
        ("How do I install Docker?", False, False, False),
        ("Should I learn Spanish?", False, False, False),
        ("Why do we dream?", False, False, False),
        ("How do I boil an egg?", False, False, False),
        ("Do I need to wash rice?", False, False, False),
    ],
)
def test_manner_reason_and_duty_may_be_asked_of_certain_things(
    question: str, is_named: bool, manner: bool, duty: bool
) -> None:
    assert (may_ask(question, is_named), asks_whether(question, is_named)) == (manner, duty)


@pytest.mark.parametrize(("margin", "expected"), [(-0.06, False), (0.09, True)])
def test_a_question_for_a_manner_is_own_only_if_that_is_more_likely(margin: float, expected: bool) -> None:
    # Another question is taken for the user's own from a tenth of that probability on.
    assert is_own(Leaning(margin), "How do we open the gate?", Common()) is expected  # type: ignore[arg-type]
    assert is_own(Leaning(margin), "Where did we put the gate?", Common())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("locker code?", True),
        ("Plumber's number?", True),
        ("Result against Oakmere?", True),
        ("interest rate on the mortgage?", True),
        ("locker code", False),
        ("Really?", False),
        ("Another example?", False),
        ("Any news from the bank?", False),
        ("Can you help?", False),
        ("Is it open?", False),
        (f"{'word ' * 11}?", False),
        (f"{'word ' * 10}?", True),
    ],
)
def test_a_phrase_with_a_question_mark_asks_for_a_fact(question: str, expected: bool) -> None:
    assert asks(question) is expected


@pytest.mark.parametrize(
    ("question", "common", "signs"),
    [
        ("What did I wear?", Common(), {"self": 1, "deed": 1}),
        ("When is my exam?", Common(), {"self": 1, "form": 1}),
        ("Who founded it?", Common(0.5, 0.6), {"similarity": 0.5, "closest": 0.6}),
        ("Who painted the Mona Lisa?", Common(), {"long name": 1}),
        ("Who wrote the Lord of the Rings?", Common(), {"long name": 1}),
        ("Who painted the kitchen, Mrs Novak?", Common(), {"person": 1}),
        ("Where does Hilda live?", Common(), {"person": 1}),
        ("When is Hilda's exam in May?", Common(), {"person": 1}),
        ("When was the Hilda founded?", Common(), {}),
        ("Where is San Marino?", Common(), {"long name": 1}),
        ("What happens in May?", Common(), {}),
    ],
)
def test_signs_tell_whether_a_question_is_about_own_matters(
    question: str, common: Common, signs: dict[str, float]
) -> None:
    found = _signs(Leaning(0.0), question, common)  # type: ignore[arg-type]
    assert {name: value for name, value in found.items() if value and name != "margin"} == signs
    assert found["margin"] == pytest.approx(0)
    assert found.keys() == _WEIGHTS.keys()


def test_each_sign_moves_the_log_odds_by_its_weight() -> None:
    none = dict.fromkeys(_WEIGHTS, 0.0)
    for name, weight in _WEIGHTS.items():
        assert _log_odds(none | {name: 1.0}) - _log_odds(none) == pytest.approx(weight)


@pytest.mark.parametrize("question", ["Do I have a car?", "Am I married?", "Does my aunt drink?"])
def test_whether_something_is_so_of_the_user_is_their_own_matter_by_its_form(question: str) -> None:
    assert is_own(Leaning(-0.4), question, Common())  # type: ignore[arg-type]


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
    ("question", "common"),
    [
        ("Who founded a pump?", Common()),
        ("Who founded a pump?", Common(0.0, 0.3)),
        ("Who founded the pump?", Common(0.4, 0.4)),
        ("When is my exam?", Common()),
    ],
)
def test_the_more_a_question_has_to_do_with_the_user_the_less_it_must_resemble_such_questions(
    question: str, common: Common
) -> None:
    signs = _signs(Leaning(0.0), question, common)  # type: ignore[arg-type]
    least = (_LEAST - _log_odds(signs)) / _WEIGHTS["margin"]
    for margin, own in ((least + 0.002, True), (least - 0.002, False)):
        assert is_own(Leaning(margin), question, common) is own  # type: ignore[arg-type]
    bare = _signs(Leaning(0.0), "Who founded a pump?", Common())  # type: ignore[arg-type]
    assert least <= (_LEAST - _log_odds(bare)) / _WEIGHTS["margin"]


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


@pytest.mark.parametrize(
    ("question", "is_named", "expected"),
    [
        ("Who is Wout Bakker?", True, True),
        ("Who is Wout Bakker?", False, False),
        ("Where was Wout Bakker born?", True, False),
    ],
)
def test_who_somebody_is_of_whom_memories_tell_is_an_own_matter(
    question: str, is_named: bool, expected: bool
) -> None:
    assert is_own(Leaning(-0.1), question, Common(is_named=is_named)) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("margin", "similarity", "question", "expected"),
    [
        (0.1, 0.0, "Where is the ladder?", True),
        (-0.05, 0.5, "Where is the ladder?", False),
        (0.0, 0.5, "Where is the ladder?", True),
        (-0.1, 0.6, "What is the capital of Portugal?", False),
        (-0.05, 0.0, "What is my blood type?", True),
        (-0.1, 0.0, "What should I wear?", False),
        (0.06, 0.0, "Where does Hilda live?", True),
    ],
)
def test_own_matters_by_numbers_that_occur(
    margin: float, similarity: float, question: str, expected: bool
) -> None:
    common = Common(similarity, similarity)
    assert is_own(Leaning(margin), question, common) is expected  # type: ignore[arg-type]
