from __future__ import annotations

import pytest
from mindful.conversation.contrast import _OPPOSITES, contrasts


@pytest.mark.parametrize(
    ("question", "memory"),
    [
        ("What color is our home kit?", "Away kit: yellow with black sleeves"),
        ("Who is my internal examiner?", "Dr. Siddiqui has agreed to be my external examiner."),
        ("What does a bank day shift pay?", "Bank nights pay 24.80 an hour."),
        ("How many are in the first-semester course?", "The second-semester course has 16 students."),
        ("What is the name of our neighbor to the north?", "Our neighbor to the south is Signora Bellucci."),
        ("What does the piano teacher charge?", "The violin teacher charges 40 euros."),
        ("Where is the garage key?", "The cellar key hangs in the hall."),
        ("When is Anna's dance lesson?", "The riding lesson is on Monday."),
        ("When does the girls team train?", "The boys team trains on Tuesdays."),
        ("When is the meeting on Mondays?", "The meeting on Fridays begins at nine."),
    ],
)
def test_another_one_of_the_same_things_is_not_the_one_that_is_asked_for(question: str, memory: str) -> None:
    assert contrasts(question, memory)


@pytest.mark.parametrize(
    ("question", "memory"),
    [
        ("What color is our home kit?", "The home kit is red."),
        ("What color is the kit?", "Away kit: yellow"),
        ("Who is my examiner?", "Dr. Siddiqui is my external examiner."),
        ("What does a night shift pay?", "Bank nights pay 24.80 an hour, days 19."),
        ("What does the piano teacher charge?", "The violin teacher and the piano teacher charge 40 euros."),
        ("What does the piano teacher charge?", "Mr. Novak teaches piano for 40 euros."),
        ("When does our conductor study?", "Tobias studies on Mondays."),
        ("When do I see Professor Baek each week?", "I meet Professor Baek every Wednesday."),
        ("Where is the garage key?", "The 2 keys hang in the hall, that of the garage too."),
        ("Where is the key?", "The cellar, key and lamp."),
        ("Where is the garage key?", "We label cellar key hooks by hand."),
        ("When is the meeting on Mondays?", "The meeting on Mondays begins at nine, on Fridays at ten."),
    ],
)
def test_what_may_be_the_one_that_is_asked_for_does_not_contrast(question: str, memory: str) -> None:
    assert not contrasts(question, memory)


def test_a_form_of_a_word_is_the_word() -> None:
    assert contrasts("When are the piano lessons?", "The violin lesson is at nine.")
    assert not contrasts("When are the piano lessons?", "The pianos lesson is at nine.")


def test_only_the_beginning_of_a_long_memory_is_read() -> None:
    assert not contrasts("Where is the garage key?", "x " * 1000 + "The cellar key hangs in the hall.")


def test_a_word_has_one_set_of_opposites() -> None:
    words = [word for opposites in _OPPOSITES for word in opposites]
    assert len(words) == len(set(words))
