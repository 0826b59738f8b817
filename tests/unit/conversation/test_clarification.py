"""Which questions are asked back, how, and what replies settle."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from mindful.confidence.measure import Pair, gain
from mindful.conversation.clarification import (
    Clarified,
    Question,
    chosen,
    close,
    named,
    of_answers,
    of_names,
    of_reference,
    referring,
    resolve,
)
from support.sources import ROOT
from unit.fakes import FakeDatabase


@pytest.mark.parametrize(
    ("question", "memories", "choices"),
    [
        ("Where does Anna live?", ["Anna Berg is here.", "I met Anna Stein."], ["Anna Berg", "Anna Stein"]),
        ("Where does Berg live?", ["I met Anna Berg.", "I met Tom Berg."], ["Anna Berg", "Tom Berg"]),
        ("What's Anna's job?", ["Anna Berg's job is hard.", "Anna Stein"], ["Anna Berg", "Anna Stein"]),
        ("Was sagt Émile?", ["Das sagt Émile Zola.", "So Émile Durkheim."], ["Émile Durkheim", "Émile Zola"]),
        ("Where is Anna?", ["I met Anna Berg. Yesterday Anna Berg left."], None),
        ("Where is Anna?", ["I met Anna Berg.", "Anna is kind."], None),
        ("Where is Anna?", ["Hey Anna, hi! Thanks Anna. Oh! Dear Anna", "Anna\nBut Anna"], None),
        ("Where is Anna?", ["Anna Berg is here. Hey Anna Stein!"], ["Anna Berg", "Anna Stein"]),
        ("Where is Anna Berg?", ["I met Anna Berg.", "I met Anna Stein."], None),
        ("where is anna?", ["I met Anna Berg.", "I met Anna Stein."], None),
        ("Where is Tom?", ["I met Anna Berg.", "I met Anna Stein."], None),
        ("", [], None),
    ],
)
def test_names_that_are_part_of_more_than_one(
    question: str, memories: Sequence[str], choices: Sequence[str] | None
) -> None:
    found = of_names(question, memories)
    assert (None if found is None else found.choices) == choices


def test_the_question_is_asked_again_with_the_full_name() -> None:
    assert named("What is Anna's job, Anna?", "Anna Stein") == "What is Anna Stein's job, Anna?"
    assert named("Where does Berg live?", "Anna Berg") == "Where does Anna Berg live?"


@pytest.mark.parametrize(("longer", "asked"), [(0, True), (1, False)])
def test_names_are_looked_for_in_questions_of_a_thousand_characters(longer: int, asked: bool) -> None:
    question = "Where is Anna?" + "?" * (1000 - len("Where is Anna?") + longer)
    assert (of_names(question, ["I met Anna Berg.", "I met Anna Stein."]) is not None) == asked


def test_at_most_three_names_are_asked_for() -> None:
    found = of_names("Where is Anna?", [f"I met Anna {name}." for name in ("Dahl", "Cole", "Berg", "Amis")])
    assert found is not None
    assert str(found) == "Which one do you mean: Anna Berg, Anna Cole or Anna Dahl?"


@pytest.mark.parametrize(
    ("counts", "choices"),
    [
        ({"Paris.": 3, "Lyon.": 2}, ["Paris", "Lyon"]),
        ({"Paris.": 4, "Lyon.": 1}, None),
        ({"Paris.": 2, "Paris": 2}, None),
        ({"Paris.": 3, "x" * 101: 2}, None),
        ({"Paris.": 3, "Lyon\nor so": 2}, None),
        ({"Paris.": 3, ".": 2}, None),
        ({}, None),
    ],
)
def test_answers_that_compete(counts: dict[str, int], choices: Sequence[str] | None) -> None:
    found = of_answers(counts)
    assert (None if found is None else found.choices) == choices


def test_answers_are_quoted() -> None:
    asked = Question("answer", ["Paris", "Lyon"])
    assert str(asked) == 'My answers differ: "Paris" or "Lyon". Which one fits what you mean?'


@pytest.mark.parametrize(
    ("reply", "choice"),
    [
        ("Anna Stein", "Anna Stein"),
        ("STEIN, of course!", "Anna Stein"),
        ("Anna", None),
        ("Berg or Stein", None),
        ("What time is it?", None),
        ("", None),
    ],
)
def test_a_reply_names_a_choice_by_its_own_words(reply: str, choice: str | None) -> None:
    assert chosen(["Anna Berg", "Anna Stein"], reply) == choice


@pytest.mark.parametrize(
    ("gained", "lost", "p_value", "helps"),
    [
        (0, 0, 1.0, False),
        (3, 0, 1 / 8, False),
        (4, 0, 1 / 16, True),
        (8, 2, 56 / 1024, True),
        (2, 8, 1013 / 1024, False),
    ],
)
def test_a_gain_is_what_chance_hardly_makes(gained: int, lost: int, p_value: float, helps: bool) -> None:
    pairs = [Pair(True, False, True)] * gained + [Pair(True, True, False)] * lost
    pairs += [Pair(True, True, True), Pair(False, False, True)]
    *counts, found, decided = gain(pairs)
    assert counts == [gained + lost + 2, gained + lost + 1, gained, lost]
    assert found == pytest.approx(p_value)
    assert decided == helps


@pytest.mark.parametrize(
    ("question", "pronoun", "reply", "expected"),
    [
        ("Where does he live?", "he", "Tom.", "Where does Tom live?"),
        ("When was it sold?", "it", " the boat! ", "When was the boat sold?"),
        ("Is the theater near it?", "it", "the park", "Is the theater near the park?"),
        ("He is where?", "He", "Tom", "Tom is where?"),
        ("Where does he live?", "he", "Who?", None),
        ("Where does he live?", "he", " . ", None),
        ("Where does he live?", "he", "x" * 1000, None),
        ("Where does Tom live?", "she", "Ana", None),
    ],
)
def test_a_pronoun_is_replaced_by_what_the_user_says(
    question: str, pronoun: str, reply: str, expected: str | None
) -> None:
    assert referring(question, pronoun, reply) == expected


def standing_alone() -> Iterator[str]:
    """Questions of the package and the benchmarks that need nothing said before."""
    files = [ROOT / "plpy/src/mindful/confidence/facts.json", *(ROOT / "tests/bench").glob("*.json")]
    for file in files:
        yield from re.findall(r'"([^"]{1,300}\?)"', file.read_text())


def test_questions_that_stand_alone_are_not_asked_back() -> None:
    questions = set(standing_alone())
    assert len(questions) > 1000
    assert [question for question in questions if of_reference(question)] == []


@pytest.mark.parametrize(
    ("question", "pronoun"),
    [("How do I fix it?", "it"), ("Where does she live?", "she"), ("What happened to her?", "her")],
)
def test_a_question_that_points_at_nothing_is_asked_back(question: str, pronoun: str) -> None:
    found = of_reference(question)
    assert found is not None
    assert str(found) == f'What do you mean by "{pronoun}"?'


def resolved(of: str, choices: list[str], reply: str, question: str, answer: str = "") -> Clarified | None:
    asked = json.dumps({"of": of, "choices": choices})
    row = {"decision_id": 7, "question": question, "answer": answer, "clarification": asked}
    return resolve(cast(Any, FakeDatabase({"_mindful.clarification": [row]})), 1, reply)


def test_a_reply_with_a_name_asks_again_for_that_name_alone() -> None:
    found = resolved("name", ["Anna Berg", "Anna Stein"], "the Stein one", "Where does Anna live?")
    assert found == Clarified(7, "Where does Anna Stein live?", name="Anna Stein", rivals=["Anna Berg"])
    assert found.rules_out("Anna Berg lives in Linz.")
    assert not found.rules_out("Anna Berg and Anna Stein live in Linz.")
    assert not found.rules_out("Anna lives in Graz.")
    assert resolved("name", ["Anna Berg", "Anna Stein"], "neither", "Where does Anna live?") == Clarified(7)


@pytest.mark.parametrize(
    ("reply", "choice", "correct"), [("in Linz", "Linz", True), ("Graz!", "Graz", False)]
)
def test_a_reply_with_an_answer_labels_the_one_that_was_withheld(
    reply: str, choice: str, correct: bool
) -> None:
    found = resolved("answer", ["Linz", "Graz"], reply, "Where does Anna live?", "Linz.")
    assert found == Clarified(7, f"Where does Anna live? ({choice})", correct)
    db = FakeDatabase({"insert into mindful.outcome": []})
    close(cast(Any, db), found)
    assert db.arguments_of("insert into mindful.outcome") == [(7, correct)]


def test_a_reply_to_what_is_meant_asks_again() -> None:
    assert resolved("reference", ["he"], "Tom", "Where does he live?") == Clarified(7, "Where does Tom live?")
    assert resolve(cast(Any, FakeDatabase({"_mindful.clarification": []})), 1, "Tom") is None
    db = FakeDatabase({})
    close(cast(Any, db), Clarified(7, "Where does Tom live?"))
    assert db.asked == []


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Where does Anna live?", "Where does Anna Stein live?"),
        ("Is Annabel like Anna?", "Is Annabel like Anna Stein?"),
        ("Is Mr Stein here?", "Is Mr Anna Stein here?"),
        ("Who is it?", "Who is it?"),
    ],
)
def test_a_part_of_a_name_becomes_the_whole_name(question: str, expected: str) -> None:
    assert named(question, "Anna Stein") == expected


def test_lower_case_letters_outside_of_a_to_z_are_no_names() -> None:
    memories = ["Wir sahen über märz im Kino.", "Wir sahen über élan im Kino."]
    assert of_names("Was ist über dem Haus?", memories) is None
    assert of_names("Where is Émile?", ["I met Émile Zola.", "I met Émile Roux."]) is not None
