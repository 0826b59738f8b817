"""What rules draw from texts, and what they leave alone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from mindful.learning.extraction import Statement
from mindful.learning.extraction.date import dated
from mindful.learning.extraction.resolution import Fact, Resolver
from mindful.learning.extraction.rule import statements

MONDAY = datetime(2023, 5, 8, 14, 0, tzinfo=UTC)
TUESDAY = datetime(2023, 5, 9, 14, 0, tzinfo=UTC)


def contents(text: str, speaker: str | None = "Ana") -> list[str]:
    return [found.content for found in statements(text, speaker, MONDAY)]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("I live in Boston.", "Ana lives in Boston."),
        ("Hey Bob! By the way, I moved to New York last week.", "Ana lives in New York."),
        ("My name is Ana Silva.", "Ana is called Ana Silva."),
        ("I'm 34 years old.", "Ana is 34 years old."),
        ("I work as a nurse at night.", "Ana works as a nurse at night."),
        ("I\u2019m a software engineer, you know.", "Ana is a software engineer."),
        ("I'm allergic to peanuts!", "Ana is allergic to peanuts."),
        ("I really love hiking with my dog.", "Ana likes hiking with their dog."),
        ("I don't like olives.", "Ana dislikes olives."),
        ("My favorite book is Dune.", "Ana's favorite book is Dune."),
        ("I have two kids.", "Ana has two kids."),
        ("I have a dog named Rex, and he is lovely.", "Ana has a dog named Rex."),
        ("My sister works as a teacher.", "Ana's sister works as a teacher."),
        ("I live in Łódź.", "Ana lives in Łódź."),
        ("My sister Zoë lives in Århus.", "Ana's sister Zoë lives in Århus."),
        ("My dog's name is Rex.", "Ana's dog is called Rex."),
        ("I went to a concert yesterday.", "Ana went to a concert yesterday (2023-05-07)."),
        ("Last Friday I adopted a cat.", "Ana adopted a cat (2023-05-05)."),
        ("I'm planning to visit Lisbon next month.", "Ana plans to visit Lisbon next month."),
        ("We went camping in the mountains.", "Ana and others went camping in the mountains."),
    ],
)
def test_statements_are_drawn(text: str, content: str) -> None:
    assert contents(text) == [content]


@pytest.mark.parametrize(
    "text",
    [
        "Do I live in Boston?",
        "If I live in Boston, I will tell you.",
        "I would love a dog.",
        "I love it.",
        "I love how you sing.",
        "I love that for you!",
        "I like your dog.",
        "I might move to Boston.",
        "You live in Boston.",
        "I used to live in Paris.",
        "I wish I had two kids.",
        "Thanks, I appreciate it.",
        "I have an idea.",
        "I want to.",
        "",
        "?!",
    ],
)
def test_what_is_in_doubt_is_left_alone(text: str) -> None:
    assert contents(text) == []


def test_quotes_stand_in_their_source() -> None:
    text = "Hi! I\u2019m from Oslo \u2014 and I love skiing, because I grew up in Norway. \U0001f600 My cat loves fish."
    found = list(statements(text, "Ana", MONDAY))
    assert [statement.content for statement in found] == [
        "Ana comes from Oslo.",
        "Ana likes skiing.",
        "Ana grew up in Norway.",
        "Ana's cat likes fish.",
    ]
    assert all(statement.quote in text for statement in found)
    assert [statement.cause for statement in found] == [False, False, True, False]


def test_a_document_speaks_of_others_by_name() -> None:
    assert contents("Anna Miller lives in Boston. I live in Rome.", None) == ["Anna Miller lives in Boston."]
    assert contents("Running is healthy. Life has a house.", None) == []


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("yesterday", "2023-05-07"),
        ("three days ago", "2023-05-05"),
        ("last Monday", "2023-05-01"),
        ("next monday", "2023-05-15"),
        ("on 3 June 2022", "2022-06-03"),
        ("March 1st, 2024", "2024-03-01"),
        ("31 June 2022", None),
        ("last week", None),
    ],
)
def test_days(text: str, day: str | None) -> None:
    found = dated(text, MONDAY)
    assert (found and f"{found:%Y-%m-%d}") == day


def statement(relation: str, thing: str, subject: str = "Ana") -> Statement:
    return Statement(subject, relation, thing, f"{subject} {relation} {thing}.", thing, 0.8)


def known(relation: str, thing: str, at: datetime = MONDAY, subject: str = "Ana") -> Fact:
    return Fact(subject, relation, thing, at, id=1)


def test_the_same_is_strengthened() -> None:
    fact = known("likes", "the hiking")
    resolver = Resolver([fact])
    assert resolver.add(statement("likes", "Hiking"), 7, TUESDAY) is fact
    assert fact.sources == [(7, "Hiking")]
    assert (resolver.news, resolver.changed) == ([], [fact])


def test_more_detail_refines() -> None:
    fact = known("likes", "hiking")
    new = Resolver([fact]).add(statement("likes", "hiking in the Alps"), 7, TUESDAY)
    assert new.refines == [fact]
    assert fact.until is None


def test_a_contradiction_closes_the_older() -> None:
    fact = known("lives_in", "Boston")
    new = Resolver([fact]).add(statement("lives_in", "Rome"), 7, TUESDAY)
    assert (fact.until, fact.superseded_by) == (TUESDAY, new)
    assert new.until is None


def test_an_older_text_does_not_close_the_newer() -> None:
    fact = known("lives_in", "Boston", TUESDAY)
    new = Resolver([fact]).add(statement("lives_in", "Rome"), 7, MONDAY)
    assert fact.until is None
    assert (new.until, new.superseded_by) == (TUESDAY, fact)


def test_liking_contradicts_disliking() -> None:
    fact = known("dislikes", "olives")
    new = Resolver([fact]).add(statement("likes", "olives"), 7, TUESDAY)
    assert new.contradicts == [fact]


def test_two_dogs_may_have_two_names() -> None:
    fact = known("name", "Rex", subject="Ana's dog")
    new = Resolver([fact]).add(statement("name", "Max", "Ana's dog"), 7, TUESDAY)
    assert fact.until is None
    assert new.contradicts == []


def test_the_same_event_in_another_year_is_another() -> None:
    fact = known("event", "camping", datetime(2022, 5, 8, tzinfo=UTC))
    resolver = Resolver([fact])
    resolver.add(statement("event", "camping"), 7, MONDAY)
    assert len(resolver.news) == 1
