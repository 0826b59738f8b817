from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from mindful.conversation import bearing, change
from mindful.conversation.bearing import Bearing
from mindful.conversation.bridge import named_instead
from mindful.conversation.recall import Recall
from unit.fakes import FakeDatabase

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
    found = Bearing(question, "e", {1: 0.5}, {1: "office?"}, {1: held}, {1: memory})
    assert [*named_instead(found)] == ([] if expected is None else [(1, *expected)])


@pytest.mark.parametrize(("best", "expected"), [(1, (2, "Birgit")), (2, None)])
def test_no_name_is_looked_for_where_the_best_memory_has_all_words(
    best: int, expected: tuple[int, str] | None
) -> None:
    contents = {1: "The harbor is busy.", 2: MASTER}
    scores = {1: 0.6, 2: 0.6} | {best: 0.61}
    held = {1: "harbor", 2: "harbor master's"}
    question = "Where is the harbor master's office?"
    found = Bearing(
        question, "e", {1: 0.4, 2: 0.5}, {1: "master's office", 2: ""}, held, contents, scores=scores
    )
    assert sorted(found.answering) == [1, 2]
    named = next(named_instead(found), None)
    assert (named and named[:2]) == expected


@pytest.mark.parametrize(
    ("question", "held", "memory", "expected"),
    [
        (
            "Where does the friend who gave me my watch work?",
            "gave watch",
            "My watch is a Suunto that Tomasz gave me.",
            ["Where does Suunto work?", "Where does Tomasz work?"],
        ),
        (
            "What was the job of the woman who chairs our club?",
            "chairs club",
            "Gwen Pritchard chairs the club.",
            ["What was the job of Gwen?"],
        ),
        (
            "Until when is the person with ticket 5521 away?",
            "ticket 5521",
            "Ticket 5521 is assigned to Bogdan.",
            ["Until when is Bogdan away?"],
        ),
        ("Where is the key of the cellar?", "key cellar", "Rosa has the key of the cellar.", []),
        ("Where does the friend who gave me my watch work?", "work", "Tomasz wants to work.", []),
        ("Where does the man with the dog live?", "dog", "In March the dog was ill.", []),
    ],
)
def test_a_name_takes_the_place_of_a_description_by_a_clause(
    question: str, held: str, memory: str, expected: list[str]
) -> None:
    found = Bearing(question, "e", {1: 0.5}, {1: "x"}, {1: held}, {1: memory})
    assert [asked for _, _, asked in named_instead(found)] == expected


def test_what_a_newer_memory_replaces_names_nothing() -> None:
    question = "Where is the harbor master's office?"
    found = Bearing(
        question, "e", {1: 0.5}, {1: "office?"}, {1: "harbor master's"}, {1: MASTER}, outdated={1: 2}
    )
    assert not [*named_instead(found)]


@pytest.mark.parametrize(("score", "expected"), [(0.7, [2, 1]), (0.5, []), (0.45, [])])
def test_the_memory_about_the_name_is_shown_if_it_answers_better(
    monkeypatch: pytest.MonkeyPatch, score: float, expected: list[int]
) -> None:
    rows = [
        {"id": 1, "role": None, "said_next": None, "content": MASTER},
        {"id": 2, "role": None, "said_next": None, "content": "Birgit's office is on pier 4."},
        {"id": 3, "role": None, "said_next": None, "content": "The office closes at noon."},
    ]
    question = "Where is the harbor master's office?"
    found = Bearing(question, "e", {1: 0.5}, {1: "office?"}, {1: "harbor master's"}, {1: MASTER})
    then = found._replace(contents={2: "Birgit's office is on pier 4."}, scores={2: score})
    asked = []

    def embed(texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        return [[1.0]]

    def weigh(_db: object, message: str, *_: object, **_named: object) -> Bearing:
        asked.append(message)
        return then

    monkeypatch.setattr(bearing, "weigh", weigh)
    monkeypatch.setattr(change, "outdated", lambda *_: {})
    reading: Any = SimpleNamespace(session_id=None)
    recall = Recall(FakeDatabase({"memory_recall": rows}), reading, cast(Any, None))
    recall.considered = rows
    embedder: Any = SimpleNamespace(name="e", embed=embed)
    shown = recall._bridged(found._replace(scores={1: 0.5}), embedder, 3)
    assert [row["id"] for row in shown] == expected
    assert asked == ["Where is Birgit's office?"] * 2
    assert [row["id"] for row in recall.considered] == ([2, 1, 3] if expected else [1, 2, 3])
