from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mindful.conversation import bearing
from mindful.conversation.about import Asked, asked_about, known
from mindful.conversation.bearing import Bearing
from mindful.conversation.expected import kind_of
from mindful.conversation.naming import own_name
from mindful.core.ports import Row
from unit.fakes import Answer, FakeDatabase

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


def told(number: int, content: str, **changed: Any) -> Row:
    return {"id": number, "content": content, "kind": "episodic", "role": "user"} | changed


def all_known(
    monkeypatch: pytest.MonkeyPatch,
    message: str,
    rows: Sequence[Row] = (),
    similarities: Mapping[int, float] | None = None,
    held: Mapping[int, str] | None = None,
    user_name: str | None = None,
    most: int = 10,
) -> tuple[Bearing, list[int]] | None:
    """What is known of what a message asks for, where memories are so similar to it and have these of its words."""

    def weigh(_db: object, topic: str, _embedder: object, _vector: str, contents: dict[int, str]) -> Bearing:
        near = {id_: (similarities or {}).get(id_, 0.0) for id_ in contents}
        words = {id_: (held or {}).get(id_, "") for id_ in contents}
        return Bearing(topic, "e", near, {}, words, contents)

    monkeypatch.setattr(bearing, "weigh", weigh)
    answers: dict[str, Answer] = {
        "_mindful.said_next": [],
        "_mindful.stated_by_user": rows,
        "_mindful.similarity": lambda ids, _places, _vectors: [
            {"similarity": (similarities or {}).get(id_, 0.0)} for id_ in ids
        ],
    }
    embedder: Any = SimpleNamespace(name="e", relation="e", embed=lambda texts: [[1.0] for _ in texts])
    found = known(
        cast(Any, FakeDatabase(answers)),
        message,
        user_name,
        None,
        embedder,
        most,
        lambda *given: list(rows)[: given[-1]],
    )
    return found and (found[0], [row["id"] for row in found[1]])


def test_of_a_name_all_is_told_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [told(1, "Priya likes tea."), told(2, "Tea is hot."), told(3, "Tea for Priya Rao.")]
    question = "What can you tell me about Priya?"
    found = all_known(monkeypatch, question, rows, {1: 0.3, 2: 0.9, 3: 0.4}, {1: "Priya", 3: "Priya"})
    assert found is not None
    assert found[1] == [3, 1]
    assert found[0].everything
    assert sorted(found[0].answering) == [1, 3]


def test_of_a_topic_all_is_told_that_is_like_it_the_nearest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [told(at, f"text {at}") for at in range(1, 6)]
    near = {1: 0.44, 2: 0.45, 3: 0.9, 4: 0.36, 5: 0.34}
    found = all_known(monkeypatch, "What did I say about the ovens?", rows, near, {4: "ovens", 5: "ovens"})
    assert found is not None
    assert found[1] == [3, 2, 4]
    limited = all_known(monkeypatch, "What did I say about the ovens?", rows, near, {4: "ovens"}, most=2)
    assert limited is not None
    assert limited[1] == [3, 2]


def test_what_the_assistant_said_and_summaries_are_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [told(1, "a", role="assistant"), told(2, "b", kind="summary"), told(3, "c", role=None)]
    found = all_known(
        monkeypatch, "What did I say about the ovens?", rows, dict.fromkeys((1, 2, 3), 0.9), most=2
    )
    assert found is not None
    assert found[1] == [3]


@pytest.mark.parametrize(
    ("message", "is_own"),
    [("What do you know about my landlord?", True), ("What do you know about the captain?", False)],
)
def test_nothing_is_known_of_the_users_own_matters_alone(
    monkeypatch: pytest.MonkeyPatch, message: str, is_own: bool
) -> None:
    found = all_known(monkeypatch, message)
    assert (found is not None) == is_own
    assert found is None or (found[0].unknown, found[1]) == (True, [])


def test_of_the_user_what_tells_most_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [told(4, "I bake."), told(3, "I live in Cork."), told(2, "I am late."), told(1, "I bake.")]
    found = all_known(
        monkeypatch, "What do you know about me?", rows, {1: 0.5, 4: 0.5, 3: 0.7, 2: 0.1}, most=2
    )
    assert found is not None
    assert found[1] == [3, 4]
    assert found[0].everything


def test_the_users_name_is_the_setting_or_what_the_user_said_last(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [told(3, "I live in Cork."), told(2, "I am Aoife."), told(1, "My name is Tom.")]
    for setting, name, shown in ((None, "Aoife", [2]), ("Max", "Max", [])):
        found = all_known(monkeypatch, "What is my name?", rows, user_name=setting)
        assert found is not None
        assert (found[0].own_name, found[1], found[0].unknown) == (name, shown, False)
    found = all_known(monkeypatch, "What is my name?", rows[:1])
    assert found is not None
    assert (found[0].own_name, found[1], found[0].unknown) == (None, [], True)
