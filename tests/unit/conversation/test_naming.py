from __future__ import annotations

import pytest
from mindful.conversation.asked import thing_named
from mindful.conversation.naming import name_given, names_in


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the name of my cat?", "cat"),
        ("What's the name of our new neighbor?", "neighbor"),
        ("Do you know the name of the man who fixed the roof?", "man"),
        ("What is my cat called?", "cat"),
        ("How is our street called?", "street"),
        ("What do we call the old car?", "car"),
        ("what my cat is called", "cat"),
        ("What is my sister's name?", "sister"),
        ("What is our dog's full name?", "dog"),
        ("What are my children's names?", "children"),
        ("my dentist's name?", "dentist"),
        ("Who is my dentist?", "dentist"),
        ("Who's the head of my school?", "head"),
        ("Who are my flatmates?", "flatmates"),
        ("Who is on call this week?", None),
        ("Who repaired the roof?", None),
        ("When does the train leave?", None),
        ("What is my cat's weight?", None),
    ],
)
def test_some_questions_ask_for_the_name_of_a_thing(question: str, expected: str | None) -> None:
    assert thing_named(question) == expected


@pytest.mark.parametrize(
    ("question", "sentence", "expected"),
    [
        (question, sentence, name)
        for question, told in {
            "What is the name of my cat?": (
                ("My cat is called Misha and hates the vacuum cleaner.", "Misha"),
                ("My cat is named Misha, and she is three.", "Misha"),
                ("I have a cat named Misha.", "Misha"),
                ("We have a cat called 'Misha'.", "Misha"),
                ("My cat's name is Misha.", "Misha"),
                ("The name of my cat is Misha.", "Misha"),
                ("Misha is my cat.", "Misha"),
                ("Misha is the name of our cat.", "Misha"),
                ("My cat Misha sleeps all day.", "Misha"),
                ("Misha, my cat, sleeps all day.", "Misha"),
                ("Our cat goes by the name of Misha.", "Misha"),
                ("Our cat answers to Misha.", "Misha"),
                ("The cat is affectionately known as Misha.", "Misha"),
                ("My cat is Misha.", "Misha"),
                ("On Monday our cat Misha caught a mouse.", "Misha"),
                ("My cat is called Sir Tom of Ely and my dog Rex.", "Sir Tom"),
                ("My cat hates the vacuum cleaner.", None),
                ("My dog is called Rex.", None),
                ("Since Monday my cat has been ill.", None),
            ),
            "Who is my dentist?": (
                ("My dentist is Dr. Weiss, near the station.", "Dr. Weiss"),
                ("My dentist is called Anna van den Berg.", "Anna van den Berg"),
                ("The dentist is near the station.", None),
            ),
            "What are the names of my children?": (
                ("My children are called Jakob and Frida.", "Jakob and Frida"),
                ("My children's names are Jakob, Frida and Max.", "Jakob, Frida and Max"),
            ),
            "What is the backup server called?": (
                ("The backup server is called heron.", "heron"),
                ("The backup server's name is heron, since May.", "heron"),
                ("The backup server is called at night.", None),
            ),
            "What's our boat called?": (("Our boat is a Folkeboat named Petrel, 28 feet long.", "Petrel"),),
            "What is the class representative's name?": (
                ("The class representative of 9b is a girl called Samira.", "Samira"),
            ),
            "When does my cat eat?": (("My cat is called Misha.", None),),
        }.items()
        for sentence, name in told
    ],
)
def test_a_sentence_gives_a_name_by_its_form(question: str, sentence: str, expected: str | None) -> None:
    assert name_given(question, sentence) == expected


@pytest.mark.parametrize(
    ("question", "sentence", "expected"),
    [
        ("What is my boss's first name?", "My boss is called Dr. Halvorsen.", None),
        ("What is my boss's last name?", "My boss is called Dr. Halvorsen.", "Dr. Halvorsen"),
        ("What is my boss's last name?", "My boss is called Anna.", None),
        ("What is my boss's first name?", "My boss is called Anna.", "Anna"),
        ("What is my boss's first name?", "My boss is called Dr. Anna Berg.", "Dr. Anna Berg"),
        ("What is my landlord called?", "My landlord, Mr Okafor, wants the rent.", "Mr Okafor"),
        ("What is my sister's name?", "I run a bakery with my sister Priya.", "Priya"),
    ],
)
def test_a_name_is_given_if_it_has_the_part_asked_for(
    question: str, sentence: str, expected: str | None
) -> None:
    assert name_given(question, sentence) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("My watch is a Suunto that Tomasz gave me.", ["Suunto", "Tomasz"]),
        ("Margit Berg looks after Tom.", ["Tom", "Margit"]),
        ("The shop sign was painted in May by Dr. Okafor.", ["Okafor"]),
        ("In April a German asked for Olga.", []),
    ],
)
def test_the_names_of_a_sentence_are_those_that_the_question_lacks(
    sentence: str, expected: list[str]
) -> None:
    assert names_in(sentence, "Where does Olga live?") == expected
