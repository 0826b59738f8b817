from __future__ import annotations

import pytest
from mindful.conversation.expected import adds, candidates, excerpt, kind_of, may_answer, plain


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Do you know where Olga lives?", "where Olga lives?"),
        ("Can you tell me the code of the garage?", "the code of the garage?"),
        ("I forgot what Olga drinks.", "what Olga drinks."),
        ("Where does Olga live?", "Where does Olga live?"),
        ("Tell me.", "Tell me."),
    ],
)
def test_the_request_around_a_question_is_left_out(message: str, expected: str) -> None:
    assert plain(message) == expected


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Who repaired the roof?", "name"),
        ("What is my cat called?", "name"),
        ("When does the train leave?", "time"),
        ("What must I bring when I visit Olga?", "other"),
        ("Until when is the pass valid?", "time"),
        ("How much is the rent?", "number"),
        ("What does the course cost?", "number"),
        ("In which city does Olga live?", "place"),
        ("What does Olga drink?", "other"),
    ],
)
def test_a_question_asks_for_a_kind_of_answer(question: str, expected: str) -> None:
    assert kind_of(question) == expected


@pytest.mark.parametrize(
    ("question", "memory", "expected"),
    [
        ("How tall is Olga?", "Olga lives in Leeds.", False),
        ("Where does Olga live?", "Olga lives in Leeds.", True),
        ("When does the project end?", "The project has a budget of 47,500 dollars.", False),
        ("When does the project end?", "The project ends in May.", True),
        ("Who is our vet?", "Our vet is near the station.", False),
        ("Who is our vet?", "Our vet is called Haas.", True),
        ("What is the code of the safe?", "I forgot the code of the safe.", False),
        ("What is the code of the safe?", "The code of the safe is 4711.", True),
    ],
)
def test_a_memory_may_answer_if_it_has_a_new_word_of_that_kind(
    question: str, memory: str, expected: bool
) -> None:
    assert may_answer(question, memory) is expected


def test_a_number_with_a_unit_is_no_time() -> None:
    assert candidates("When was it sold?", "It was sold in 1998 for 300 euros.") == ["1998"]


def test_a_question_asked_before_adds_nothing() -> None:
    assert not adds("What is the code of the safe?", "I forgot the code of the safe.")
    assert adds("What is the code of the safe?", "The code of the safe is 4711.")


def test_the_sentence_that_answers_is_quoted() -> None:
    memory = "I went to see Dr. Haas. The dog weighs 12 kilos. It has a new toy."
    assert excerpt("How much does the dog weigh?", memory) == "The dog weighs 12 kilos."
