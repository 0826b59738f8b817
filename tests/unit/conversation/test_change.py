"""Which newer memory replaces an older one."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from mindful.conversation.bearing import Bearing
from mindful.conversation.change import later_changes, outdated
from mindful.core.ports import Row
from unit.fakes import FakeDatabase


def row(number: int, content: str) -> Row:
    return {"id": number, "content": content, "kind": "fact", "said_at": float(number)}


OFFICE = [row(1, "The office is in Berlin."), row(2, "The office is in Graz.")]
HOURS = [row(1, "Offices open at 9:00."), row(2, "Offices open at 8:30.")]
MOVED = [OFFICE[0], row(2, "The office has moved to Graz.")]
BANK = [row(1, "I have an account with Sparda."), row(2, "Sparda was slow, so I switched to Revolut.")]
WEIGHT = "I weigh 82 kilos."


def bearing(question: str, held: dict[int, str], lacked: dict[int, str] | None = None) -> Bearing:
    similarities = dict.fromkeys(held, 0.5)
    return Bearing(question, "e", similarities, lacked or dict.fromkeys(held, ""), held, {})


@pytest.mark.parametrize(
    ("question", "rows", "held", "nearness", "expected"),
    [
        ("Where is the office?", OFFICE, {1: "office?", 2: "office?"}, 0.7, {1: 2}),
        ("Where is the office?", OFFICE, {1: "office?", 2: "office?"}, 0.5, {}),
        ("Where is the office?", MOVED, {1: "office?", 2: "office?"}, 0.5, {1: 2}),
        ("Where is the office?", MOVED, {1: "office?", 2: "office?"}, 0.2, {}),
        ("When does the office open?", MOVED, {1: "office?", 2: "office?"}, 0.5, {}),
        ("Where are the offices?", OFFICE, {1: "offices?", 2: "offices?"}, 0.7, {}),
        ("When are offices open?", HOURS, {1: "offices", 2: "offices"}, 0.7, {1: 2}),
        ("What does our Olga do?", OFFICE, {1: "Olga", 2: "Olga"}, 0.7, {}),
    ],
)
def test_a_newer_statement_of_the_same_replaces_an_older_one(
    question: str, rows: list[Row], held: dict[int, str], nearness: float, expected: dict[int, int]
) -> None:
    db = FakeDatabase({"recall_nearness": [{"found": [1, nearness, nearness, 1]}]})
    assert outdated(db, bearing(question, held), rows) == expected


@pytest.mark.parametrize(
    ("newer", "expected"),
    [
        (BANK[1], {1: 2}),
        (row(2, "Sparda was slow, so I wrote to Revolut."), {}),
        (row(2, "I switched to Revolut."), {}),
    ],
)
def test_a_change_from_what_an_older_statement_gives_replaces_it(
    newer: Row, expected: dict[int, int]
) -> None:
    found = bearing("Who has my account?", {1: "account", 2: ""}, {1: "", 2: "account"})
    db = FakeDatabase({"recall_nearness": [{"found": [1, 0.5, 0.5, 1]}]})
    assert outdated(db, found, [BANK[0], newer]) == expected


@pytest.mark.parametrize(
    ("question", "older", "newer", "held", "expected"),
    [
        (
            *("Where does Lena work?", "Lena works at Bosch.", "Lena left Bosch, she is at Siemens."),
            *(("Lena work", "Lena"), True),
        ),
        (
            *("When is the report due?", "The report is due on May 3.", "As of today it is due on May 9."),
            *(("report due", "due"), True),
        ),
        (
            *("What do I charge for a jar?", "I sell a jar at 7.50.", "From this week a jar is 8.25."),
            *(("jar", "jar"), True),
        ),
        (
            *("What is the deadline?", "The deadline is May 3.", "The deadline is put off to May 9."),
            *(("deadline", "deadline"), True),
        ),
        # Of another person.
        ("Where do I live?", "I live in Graz.", "Tom left Graz for Vienna.", ("live", ""), False),
        (
            *("Where does my sister live?", "My sister lives in Bern.", "My brother left Bern for Basel."),
            *(("sister live", ""), False),
        ),
        (
            *("Where does Lena work?", "Lena works at Bosch.", "Lena's husband left Bosch for Siemens."),
            *(("Lena work", "Lena"), False),
        ),
        (
            *("How many pills do I take?", "I take 10 pills.", "My wife's pills were doubled to 20."),
            *(("pills take", "pills"), False),
        ),
        # Of another thing.
        (
            *(
                "When is the budget meeting?",
                "The budget meeting is at 10.",
                "The sales meeting was put off to 11.",
            ),
            *(("budget meeting", "meeting"), False),
        ),
        # A part of a number is no answer.
        (
            *("What is Nina's number?", "Nina has 0664 12.", "Omar changed his number to 0664 98."),
            *(("Nina number", "number"), False),
        ),
        # No word of a change.
        (
            *("Where does Lena work?", "Lena works at Bosch.", "Lena met Tom of Siemens at Bosch."),
            *(("Lena work", "Lena"), False),
        ),
    ],
)
def test_a_change_replaces_only_what_it_is_of(
    question: str, older: str, newer: str, held: tuple[str, str], expected: bool
) -> None:
    db = FakeDatabase({"recall_nearness": [{"found": [1, 0.5, 0.5, 1]}]})
    found = bearing(question, dict(enumerate(held, start=1)), {1: "", 2: "x"})
    assert outdated(db, found, [row(1, older), row(2, newer)]) == ({1: 2} if expected else {})


@pytest.mark.parametrize(
    ("newer", "nearness", "expected"),
    [
        ("I have lost weight and am down to 77 kilos.", 0.7, {1: 2}),
        ("I have lost weight and am down to 77 kilos.", 0.5, {}),
        ("Our dog has lost weight and is down to 27 kilos.", 0.7, {}),
    ],
)
def test_a_change_without_a_word_of_the_question_replaces_what_is_alike(
    newer: str, nearness: float, expected: dict[int, int]
) -> None:
    db = FakeDatabase({"recall_nearness": [{"found": [1, nearness, nearness, 1]}]})
    found = bearing("How much do I weigh?", {1: "weigh", 2: ""}, {1: "", 2: "weigh"})
    assert outdated(db, found, [row(1, WEIGHT), row(2, newer)]) == expected


def test_changes_are_looked_for_that_may_answer() -> None:
    rows = [
        row(2, "I have lost weight and am down to 77 kilos."),
        row(3, "I have lost weight."),
        row(4, "I have 77 kilos of flour."),
        row(5, "I am down to 77 kilos." + " Great." * 50),
    ]
    db = FakeDatabase({"recall_dense": rows})
    found = bearing("How much do I weigh?", {1: "weigh"})._replace(
        contents={1: WEIGHT}, own=True, scores={1: 0.7}
    )
    embedder: Any = SimpleNamespace(name="e", relation="t")
    assert [one["id"] for one in later_changes(db, found, embedder, None)] == [2]
    assert later_changes(db, found._replace(scores={}), embedder, None) == []
    for question in ("What are my weights?", "How much did I weigh?"):
        assert later_changes(db, found._replace(question=question), embedder, None) == []


def test_facts_about_two_people_of_one_name_replace_none() -> None:
    rows = [row(1, "Yesterday Anna Berg moved to Linz."), row(2, "Yesterday Anna Stein moved to Graz.")]
    db = FakeDatabase({"recall_nearness": [{"found": [1, 0.9, 0.9, 1]}]})
    assert outdated(db, bearing("Where does Anna live?", {1: "Anna live", 2: "Anna live"}), rows) == {}


@pytest.mark.parametrize(
    ("question", "older", "newer", "nearness", "expected"),
    [
        # A name is all that the statements have of the question.
        (
            *(
                "Where does Marta live?",
                "Marta moved to Toronto in 2019.",
                "Marta moved to Ottawa last week.",
            ),
            *(0.6, True),
        ),
        (
            *(
                "Where does Marta live?",
                "Marta moved to Toronto in 2019.",
                "Marta moved to Ottawa last week.",
            ),
            *(0.31, True),
        ),
        (
            "How much does Tariq earn?",
            "Tariq earns 2,900 euros.",
            "Tariq got a raise to 3,200 euros.",
            0.59,
            False,
        ),
        (
            "How much does Tariq earn?",
            "Tariq earns 2,900 euros.",
            "Tariq got a raise to 3,200 euros.",
            0.8,
            True,
        ),
        # A thing is moved or left, and no thing of the question or of the older statement.
        ("Where does Marek live?", "Marek lives in Brno.", "Marek moved the piano to Linz.", 0.8, False),
        ("Where does Lena work?", "Lena works at the school.", "Lena left the school for Bosch.", 0.8, True),
        ("Where does Marta live?", "Marta lives in Graz.", "Marta joined a gym in Linz.", 0.8, False),
        ("Where does Marta live?", "Marta lives in Graz.", "Marta quit smoking in Linz.", 0.8, False),
        ("Where does Marta live?", "Marta lives in Graz.", "Marta cancelled the flight to Linz.", 0.8, False),
        ("Where does Marta work?", "Marta works at Bosch.", "Marta had a job at Voest in 2010.", 0.8, False),
        ("Where does Marta live?", "Marta lives in Graz.", "Marta moved a month ago to Linz.", 0.8, True),
        (
            "Where does Marta live?",
            "Marta lives in Graz.",
            "Marta sold her flat and moved to Linz.",
            0.8,
            True,
        ),
        ("Where does Marta live?", "Marta lives in Graz.", "Marta left Graz for Linz.", 0.8, True),
        (
            "How much do I weigh?",
            "I weigh 82 kilos.",
            "I changed my diet and am down to 77 kilos.",
            0.6,
            True,
        ),
        (
            *("When is the meeting about the shop?", "The meeting about the shop was moved to Monday."),
            *("The meeting about the budget was moved to Friday.", 0.8, False),
        ),
        # What was before.
        ("Where did Marta live before?", "Marta lives in Graz.", "Marta moved to Linz.", 0.8, False),
        ("Where did Marta live before May?", "Marta lives in Graz.", "Marta moved to Linz.", 0.8, True),
        # Something else of the same person.
        ("When is Zoe's exam?", "Zoe's exam is on June 3.", "Zoe's lesson was moved to June 9.", 0.8, False),
        ("When is Zoe's exam?", "Zoe's exam is on June 3.", "Zoe's exam was moved to June 9.", 0.5, True),
        # The same thing, called by its last noun alone.
        (
            "When is Hugo's tea party?",
            "Hugo's tea party is on May 3.",
            "Hugo's party moved to May 4.",
            0.6,
            True,
        ),
        (
            "When is Hugo's tea party?",
            "Hugo's tea party is on May 3.",
            "Hugo's garden party is now on May 4.",
            0.6,
            False,
        ),
    ],
)
def test_a_change_of_somebody_who_is_named(
    question: str, older: str, newer: str, nearness: float, expected: bool
) -> None:
    asked = set(re.findall(r"\w+", question)) - {"s"}
    held = {
        n: " ".join(sorted(asked & set(re.findall(r"\w+", text)))) for n, text in ((1, older), (2, newer))
    }
    db = FakeDatabase({"recall_nearness": [{"found": [1, nearness, nearness, 1]}]})
    found = bearing(question, held, {1: "x", 2: "y"})
    assert outdated(db, found, [row(1, older), row(2, newer)]) == ({1: 2} if expected else {})
