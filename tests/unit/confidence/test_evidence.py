"""What is found of answers by asking further."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.confidence import evidence
from mindful.confidence.evidence import (
    Evidence,
    as_alternatives,
    counted,
    draw,
    fallback,
    gather,
    kinds,
)
from mindful.core.ports import Sampling
from mindful.models import runtime
from unit.confidence.asked import context_of, database
from unit.fakes import FakeDatabase

EMBEDDER: dict[str, Any] = {"dims": 512}
SAMPLING = Sampling(max_tokens=16)


def gathered(db: FakeDatabase, tier: int, *answers: str, question: str = "red fox") -> list[Evidence]:
    contexts = [context_of(question) for _ in answers]
    return gather(db, runtime.find(db, "generator", None), contexts, answers, SAMPLING, tier)


def test_the_cheapest_tier_asks_nothing() -> None:
    (found,) = gathered(database(first={}), 0, "a fox")
    assert (found.tier, found.signals, found.signal_ms, found.failure) == (0, {}, {}, None)


def test_likeness_to_the_question_is_the_cosine() -> None:
    same, half, none = gathered(database(embedder=EMBEDDER, first={}), 1, "Red Fox", "red hen", "blue whale")
    assert same.signals["question_similarity"] == pytest.approx(1)
    assert half.signals["question_similarity"] == pytest.approx(0.5, abs=0.01)
    assert none.signals["question_similarity"] == pytest.approx(0, abs=0.01)
    assert {one.tier for one in (same, half, none)} == {1}
    assert set(same.signal_ms) == {"question", "brief"}


def test_a_brief_answer_is_found_in_the_answer_or_not() -> None:
    def compared(answer: str, replied: str, question: str = "Who wrote Hamlet?") -> dict[str, float]:
        db = database(embedder=EMBEDDER, first={"default": replied, "logprob": -0.5})
        (found,) = gathered(db, 1, answer, question=question)
        return found.signals

    same = compared("Hamlet is by William Shakespeare.", " William Shakespeare")
    assert (same["brief_within"], same["brief_share"]) == (1, 1)
    assert same["brief_logprob_sum"] < 0
    half = compared("Hamlet is by one William.", " William Shakespeare")
    assert (half["brief_within"], half["brief_share"]) == (0, 0.5)
    # Words of the question are no evidence, and neither is a brief answer without words.
    assert compared("Hamlet is a play.", "Hamlet")["brief_share"] == 0
    assert compared("Hamlet is a play.", "?")["brief_within"] == 0


def test_answers_from_memories_are_asked_for_no_brief_answer() -> None:
    db = database(embedder=EMBEDDER, first={"default": "a fox"})
    context = context_of("red fox", "a memory of foxes")
    [found] = gather(db, runtime.find(db, "generator", None), [context], ["a fox"], SAMPLING, 1)
    assert found.tier == 1
    assert "brief_within" not in found.signals


def test_a_second_model_agrees_or_does_not() -> None:
    def compared(answer: str, replied: str) -> Evidence:
        db = database(
            embedder=EMBEDDER, fallback="second", first={}, second={"default": replied, "logprob": -0.5}
        )
        (found,) = gathered(db, 2, answer)
        return found

    same = compared("The red fox.", "the RED fox")
    assert (same.tier, same.second_answer, same.failure) == (2, "the RED fox", None)
    assert same.signals["second_agreement"] == 1
    assert same.signals["second_similarity"] == pytest.approx(1)
    assert same.signals["second_logprob_sum"] == pytest.approx(-1.5)
    assert same.alternatives == [{"model": "second", "answer": "the RED fox"}]
    assert same.second is not None
    assert same.second.spec.name == "second"
    other = compared("The red fox.", "a blue whale")
    assert other.signals["second_agreement"] == 0
    assert other.signals["second_similarity"] < 0.5


def test_samples_agree_by_their_share() -> None:
    samples = ["red fox", "red fox!", "blue whale", "gray goose"]
    (found,) = gathered(
        database(embedder=EMBEDDER, fallback="first", first={"samples": samples, "default": "x"}),
        3,
        "Red fox.",
    )
    assert found.tier == 3
    assert found.signals["sample_agreement"] == 0.5
    assert 0.5 <= found.signals["sample_similarity"] < 0.55
    shares = (3 / 5, 1 / 5, 1 / 5)
    assert found.signals["semantic_entropy"] == pytest.approx(
        -sum(share * math.log(share) for share in shares)
    )
    mine = [other for other in found.alternatives if "times" in other]
    assert {other["answer"]: other["times"] for other in mine} == dict.fromkeys(samples, 1)


def test_samples_that_all_agree_have_no_entropy() -> None:
    (found,) = gathered(
        database(embedder=EMBEDDER, fallback="first", first={"default": "red fox"}), 3, "red fox"
    )
    assert found.signals["semantic_entropy"] == 0
    assert found.signals["sample_agreement"] == 1


@pytest.mark.parametrize(
    ("missing", "tier", "failed", "reached"),
    [
        ({}, 1, "question", 0),
        ({"embedder": EMBEDDER}, 2, "second", 1),
        ({"embedder": EMBEDDER}, 3, "second", 1),
    ],
)
def test_what_cannot_be_had_ends_it_and_loses_nothing(
    missing: dict[str, Any], tier: int, failed: str, reached: int
) -> None:
    found = gathered(database(first={}, **missing), tier, "a", "b")
    assert [one.tier for one in found] == [reached, reached]
    assert all(one.failure is not None and one.failure.startswith(f"{failed}: ") for one in found)
    assert all(("question_similarity" in one.signals) == (reached == 1) for one in found)


def test_kinds_add_up_with_the_tier() -> None:
    assert [kinds(tier) for tier in range(4)] == [
        [],
        ["question", "brief"],
        ["question", "brief", "second"],
        ["question", "brief", "second", "samples"],
    ]


def test_a_fallback_is_named_where_there_is_one() -> None:
    assert fallback(database(fallback="second", first={}), "first") == "second"
    assert fallback(database(first={}), "first") is None


def test_samples_are_drawn_side_by_side_each_with_a_seed_of_its_own() -> None:
    db = database(first={"samples": [f"sample {at}" for at in range(16)]})
    contexts = [context_of("one?"), context_of("two?"), context_of("one?")]
    drawn = draw(db, "first", contexts, SAMPLING)
    assert [len(one) for one in drawn] == [4, 4, 4]
    texts = [[text for _, text in one] for one in drawn]
    assert texts[0] == texts[2]
    assert all(len(set(one)) == 4 for one in texts)


@given(st.text(), st.text())
def test_seeds_are_the_questions_own(one: str, other: str) -> None:
    mine, theirs = evidence._seeds(one), evidence._seeds(other)
    assert len(mine) == 4
    assert 1 <= mine[0] <= mine[-1] < 2**31
    assert (one == other) == (mine == theirs) or mine == theirs
    assert mine == theirs or not set(mine) & set(theirs)


@given(st.lists(st.sampled_from(["a", "b", "c"])))
def test_alternatives_are_counted_in_their_order(texts: list[str]) -> None:
    found = as_alternatives("m", texts)
    assert [other["answer"] for other in found] == list(dict.fromkeys(texts))
    assert sum(other["times"] for other in found) == len(texts)
    assert all(other["model"] == "m" and other["times"] == texts.count(other["answer"]) for other in found)


def test_answers_of_one_meaning_are_counted_together_the_most_frequent_first() -> None:
    answers = {"a whale": 2, "red fox": 1, "Red fox.": 2, "room 1": 1, "room 2": 1, "": 1}
    found = counted(database(embedder=EMBEDDER, first={}), answers)
    assert found == {"red fox": 3, "a whale": 2, "room 1": 1, "room 2": 1, "": 1}
    assert next(iter(found)) == "red fox"


@pytest.mark.parametrize(
    ("vectors", "clusters"),
    [
        ([[1.0, 0.0], [0.81, 0.59]], [0, 0]),
        ([[1.0, 0.0], [0.79, 0.61]], [0, 1]),
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 0]),
    ],
)
def test_answers_are_alike_from_a_cosine_on(vectors: list[list[float]], clusters: list[int]) -> None:
    assert evidence._clusters(["x"] * len(vectors), vectors) == clusters
    numbered = [f"x {at}" for at in range(len(vectors))]
    assert evidence._clusters(numbered, vectors) == list(range(len(vectors)))


def test_questions_are_sampled_with_seeds_of_their_own() -> None:
    first = {evidence._seeds(f"Question {at}?").start for at in range(1000)}
    assert len(first) > 998
