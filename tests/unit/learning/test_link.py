"""Links between facts, and what a model's facts are believed to be."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from mindful.learning.extraction.link import Links, entities
from mindful.learning.extraction.model import RELATIONS, _read
from mindful.learning.extraction.model import statements as by_model
from mindful.learning.extraction.resolution import Fact
from unit.fakes import FakeDatabase, scripted

AT = datetime(2024, 5, 1, tzinfo=UTC)


def fact(number: int, subject: str = "Ana", relation: str = "likes", value: str = "olives") -> Fact:
    return Fact(subject, relation, value, AT, id=number)


def linked(
    *told: tuple[Fact, int, str | None, int | None, bool],
) -> list[tuple[int | None, int | None, str, float]]:
    links = Links()
    for one, source, session, turn, cause in told:
        links.add(one, source, session, turn, cause=cause)
    return [(row["source_id"], row["target_id"], row["relation"], row["weight"]) for row in links.rows([])]


ONE, TWO, THREE = fact(1), fact(2), fact(3)


def test_facts_of_one_text_are_told_together_or_the_one_because_of_the_other() -> None:
    assert linked((ONE, 10, "s", 1, False), (TWO, 10, "s", 1, False)) == [(1, 2, "cooccurs", 0.5)]
    assert linked((ONE, 10, "s", 1, False), (TWO, 10, "s", 1, True)) == [(2, 1, "causes", 0.9)]


@pytest.mark.parametrize(
    ("session", "turn", "found"),
    [
        ("s", 2, [(1, 2, "follows", 0.3)]),
        ("s", 3, []),
        ("s", 1, []),
        ("s", 0, []),
        ("t", 2, []),
        (None, None, []),
    ],
)
def test_a_fact_follows_that_of_the_turn_before(
    session: str | None, turn: int | None, found: list[Any]
) -> None:
    assert linked((ONE, 10, "s", 1, False), (TWO, 11, session, turn, False)) == found


def test_texts_without_a_session_do_not_follow_each_other() -> None:
    assert linked((ONE, 10, None, None, False), (TWO, 11, None, 1, False)) == []


@pytest.mark.parametrize(("turn", "later"), [(None, 1), (None, None), (1, None)])
def test_a_text_of_a_session_without_a_turn_follows_none(turn: int | None, later: int | None) -> None:
    assert linked((ONE, 10, "s", turn, False), (TWO, 11, "s", later, False)) == []


def test_only_neighbors_are_linked_and_none_with_itself() -> None:
    told = [(one, 10, "s", 1, False) for one in (ONE, TWO, TWO, THREE)]
    assert [row[:2] for row in linked(*told)] == [(1, 2), (2, 3)]


def test_what_refines_or_contradicts_is_linked_to_it() -> None:
    new = fact(4)
    new.refines, new.contradicts = [ONE], [TWO, THREE]
    rows = Links().rows([new])
    assert [(row["source_id"], row["target_id"], row["relation"], row["weight"]) for row in rows] == [
        (4, 1, "refines", 0.8),
        (4, 2, "contradicts", 0.9),
        (4, 3, "contradicts", 0.9),
    ]


@pytest.mark.parametrize(
    ("subject", "value", "found"),
    [
        ("Ana", "Anna Smith and Bob", {"anna smith", "bob"}),
        ("Ana", "green olives", {"green olives"}),
        ("Ana's dog", "a long walk in the cold rain", {"ana's dog"}),
    ],
)
def test_a_fact_is_about_names_and_short_objects(subject: str, value: str, found: set[str]) -> None:
    assert found <= entities(fact(1, subject, value=value))
    assert len(entities(fact(1, subject, value=value))) <= len(found) + 1
    assert not any(" in the " in name for name in entities(fact(1, subject, value=value)))


def item(**changed: str) -> dict[str, str]:
    return {
        "quote": "I love olives",
        "fact": "Ana loves olives.",
        "relation": "likes",
        "object": "olives",
    } | changed


def read(
    *items: dict[str, str], text: str = "Well, I love olives. Do I love rain?"
) -> tuple[list[Any], dict[str, int]]:
    rejected: Counter[str] = Counter()
    return list(_read(json.dumps(items), text, "Ana", rejected)), dict(rejected)


def test_a_quoted_fact_about_the_speaker_is_believed_a_little() -> None:
    ((found,), rejected) = read(item(object=" Olives "))
    assert (found.subject, found.relation, found.object) == ("Ana", "likes", "Olives")
    assert (found.quote, found.content, found.confidence) == ("I love olives", "Ana loves olives.", 0.6)
    assert rejected == {}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"quote": "I love wine"}, "quote_not_found"),
        ({"quote": " "}, "quote_not_found"),
        ({"quote": "Do I love rain?", "object": "rain"}, "question"),
        ({"fact": "Bob loves olives."}, "other_subject"),
        ({"object": "wine"}, "object_not_quoted"),
    ],
)
def test_what_cannot_be_believed_is_counted_by_its_reason(changed: dict[str, str], reason: str) -> None:
    found, rejected = read(item(**changed), item())
    assert len(found) == 1
    assert rejected == {reason: 1}


def test_half_an_answer_is_counted() -> None:
    rejected: Counter[str] = Counter()
    assert list(_read('[{"quote": "I', "I", "Ana", rejected)) == []
    assert rejected == {"incomplete": 1}


def test_each_text_has_the_facts_of_its_own_answer() -> None:
    replies = [["love olives", json.dumps([item()])], ["love rain", json.dumps([item(quote="love rain")])]]
    db = FakeDatabase(scripted(generator={"replies": replies, "default": "[]", "context_length": 400}))
    rejected: Counter[str] = Counter()
    texts = [("I love olives", "Ana"), ("Nothing.", None), ("I love rain", "Ana")]
    found = list(by_model(db, texts, None, rejected))
    assert [len(facts) for facts in found] == [1, 0, 0]
    assert rejected == {"object_not_quoted": 1}


def test_a_long_text_is_cut_and_a_context_that_is_too_short_is_counted() -> None:
    rejected: Counter[str] = Counter()
    long = FakeDatabase(scripted(generator={"default": "[]", "context_length": 420}))
    assert list(by_model(long, [("word " * 1000, "Ana")], None, rejected)) == [[]]
    assert rejected == {}
    short = FakeDatabase(scripted(generator={"default": "[]", "context_length": 190}))
    assert list(by_model(short, [("word", "Ana"), ("word", "Bob")], None, rejected)) == [[], []]
    assert rejected == {"too_long": 2}


def test_relations_are_named_once() -> None:
    assert len(RELATIONS) == len(set(RELATIONS))
