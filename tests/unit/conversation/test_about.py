from __future__ import annotations

import pytest
from mindful.conversation.about import Asked, asked_about
from mindful.conversation.expected import kind_of
from mindful.conversation.naming import own_name

NAME = Asked(name=True)
USER = Asked()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("What is my name?", NAME),
        ("what's my name", NAME),
        ("Who am I?", NAME),
        ("Do you know who I am?", NAME),
        ("Do you still remember my name?", NAME),
        ("Hi, can you tell me my full name again?", NAME),
        ("What am I called?", NAME),
        ("What do you call me?", NAME),
        ("Do you remember what I'm called?", NAME),
        ("How should you address me?", NAME),
        ("What is my own surname?", NAME),
        ("What do you know about me?", USER),
        ("Anything you know about the captain?", Asked("the captain")),
        ("Summarize what you know about my daughters.", Asked("my daughters")),
        ("So what do you remember about me so far?", USER),
        ("What do you remember?", USER),
        ("What have I told you?", USER),
        ("What did I tell you about myself?", USER),
        ("Tell me everything you know about me.", USER),
        ("Tell me about myself", USER),
        ("Do you know anything about me?", USER),
        ("What do you know about my landlord?", Asked("my landlord")),
        ("What can you tell me about Priya?", Asked("Priya")),
        ("What did I say about the ovens?", Asked("the ovens")),
        ("Can you tell me something about our garden?", Asked("our garden")),
        ("What is my sister's name?", None),
        ("What is the name of my cat?", None),
        ("My name is Tom.", None),
        ("Who am I going to meet?", None),
        ("What do you know?", None),
        ("Tell me about Leeds.", None),
        ("Do you know where Olga lives?", None),
        ("Tell me a story.", None),
        ("What am I allergic to?", None),
    ],
)
def test_some_questions_ask_for_all_that_is_known(message: str, expected: Asked | None) -> None:
    assert asked_about(message) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("Hi! I am Tom and I run a small bakery.", "Tom"),
        ("My name is Jonas Weber.", "Jonas Weber"),
        ("my name's Dr. Chen", "Dr. Chen"),
        ("I'm Aoife, a nurse from Cork.", "Aoife"),
        ("I\u2019m Aoife.", "Aoife"),
        ("Hello, this is Marek from accounting.", "Marek"),
        ("People call me Fitz.", "Fitz"),
        ("I go by Max these days.", "Max"),
        ("I am German and live in Graz.", None),
        ("I am Tired, honestly", "Tired"),  # a capital is all that tells
        ("I am tired.", None),
        ("This is Monday.", None),
        ("My sister's name is Ella.", None),
        ("My cat is called Misha.", None),
        ("I am in Paris.", None),
    ],
)
def test_users_give_their_own_name_in_many_forms(statement: str, expected: str | None) -> None:
    assert own_name(statement) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Who is Mr Okafor?", "other"),
        ("Who was Priya", "other"),
        ("Who is my dentist?", "name"),
        ("Who is Henning's wife?", "name"),
        ("Who are the owners?", "name"),
    ],
)
def test_who_somebody_is_is_no_question_for_a_name(question: str, expected: str) -> None:
    assert kind_of(question) == expected
