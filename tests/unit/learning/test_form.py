"""Pairs to train on: what is asked of facts, and what is answered."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.core.ports import Row
from mindful.learning import form
from mindful.learning.form import Sample

RELATIONS = sorted({*form._QUESTIONS, "favorite_book"})


def fact(
    content: str = "Ana likes olives.", subject: str = "Ana", relation: str = "likes", **changed: Any
) -> Row:
    found = {
        "id": 1,
        "subject": subject,
        "relation": relation,
        "object": "olives",
        "content": content,
        "evidence": [{"source_id": 1, "quote": "I love olives"}, {"source_id": 2, "quote": "Olives!"}],
        "split": "train",
        "valid": True,
        "confidence": 0.9,
        "curated": False,
        "question": None,
        "said": "2024-05-01",
    }
    return found | changed


@pytest.mark.parametrize(
    ("subject", "relation", "asked"),
    [
        ("Ana", "lives_in", "Where does Ana live?"),
        ("Ana and others", "lives_in", "Where do Ana and others live?"),
        ("Ana", "likes", "What is something that Ana likes?"),
        ("Ana and others", "likes", "What is something that Ana and others like?"),
        ("Ana", "favorite_ice_cream", "What is Ana's favorite ice cream?"),
        ("Ana", "marital_status", "Is Ana married?"),
        ("Ana and others", "birthday", "When were Ana and others born?"),
        ("The user", "works_at", "Where does the user work?"),
        ("The user's sister", "favorite_book", "What is the user's sister's favorite book?"),
        ("Theo", "age", "How old is Theo?"),
        ("Ana", "plans", None),
    ],
)
def test_a_relation_has_its_question(subject: str, relation: str, asked: str | None) -> None:
    assert form.question(subject, relation) == asked


@pytest.mark.parametrize("relation", RELATIONS)
def test_every_question_names_its_subject_and_ends_as_one(relation: str) -> None:
    asked = form.question("Ana", relation)
    assert asked is not None
    assert "Ana" in asked
    assert asked.endswith("?")
    assert not {"{", "}"} & set(asked)


def test_a_fact_is_asked_for_with_and_without_its_words() -> None:
    recall, answer, explain = form.answerable(fact())
    assert [one.form for one in (recall, answer, explain)] == ["recall", "answer", "explain"]
    assert {one.output for one in (recall, answer, explain)} == {"Ana likes olives."}
    assert recall.input == ""
    assert answer.input == explain.input == '"I love olives" "Olives!"'
    assert recall.instruction == answer.instruction == "What is something that Ana likes?"
    assert [one.form for one in form.answerable(fact(relation="plans"))] == ["explain"]
    third = {"source_id": 3, "quote": "Again"}
    (*_, last) = form.answerable(fact(evidence=[*fact()["evidence"], third]))
    assert "Again" not in last.input


def test_a_sample_is_about_its_first_fact() -> None:
    sample = Sample("factors", "a", "b", "c", (fact(id=1), fact(id=2)))
    assert (sample.source["id"], sample.text) == (1, "a\nb\nc")


@pytest.mark.parametrize(
    ("relation", "wish", "topic"),
    [
        ("prefers", "tabs for indentation", "indentation"),
        ("likes", "pytest", "pytest"),
        ("favorite_tool", "mypy over ruff", "mypy"),
        ("dislikes", "global variables", "global variables"),
        ("likes", "a class of yoga", None),
        ("works_at", "Redis", None),
    ],
)
def test_a_wish_about_code_has_a_topic(relation: str, wish: str, topic: str | None) -> None:
    assert form.code_topic(fact(relation=relation, object=wish)) == topic


@pytest.mark.parametrize(("relation", "kept"), [("dislikes", "avoids"), ("likes", "keeps to")])
def test_a_wish_is_applied_where_code_is_written_and_reviewed(relation: str, kept: str) -> None:
    one = fact("Ana has a wish about pytest.", relation=relation, object="pytest")
    written, reviewed = form.applications(one)
    assert (written.form, reviewed.form) == ("apply", "apply")
    assert (written.output, written.refused) == ("Ana has a wish about pytest.", ())
    assert "pytest" in written.instruction
    assert kept in reviewed.output
    assert '"I love olives"' in reviewed.output
    assert "Olives!" not in reviewed.output
    (other,) = form.applications(fact())
    assert other.refused == ("not_code",)


def test_what_a_facts_words_do_not_say_is_answered_by_nothing() -> None:
    (asked,) = form.unanswered(fact())
    assert (asked.form, asked.output, asked.input) == (
        "abstain",
        form.UNANSWERED,
        '"I love olives" "Olives!"',
    )
    assert asked.instruction != form.question("Ana", "likes")


@given(st.text(max_size=30), st.sampled_from(RELATIONS), st.sampled_from(["train", "validation"]))
def test_what_words_hint_at_is_not_called_unanswerable(content: str, relation: str, split: str) -> None:
    quote = "I was born and live, work, study, and love to speak of the wedding"
    one = fact(content, relation=relation, split=split, evidence=[{"source_id": 1, "quote": quote}])
    for asked in form.unanswered(one):
        for hinted in ("birthday", "lives_in", "works_at", "works_as", "studies", "speaks", "marital_status"):
            assert asked.instruction != form.question("Ana", hinted)


def test_half_of_the_facts_are_asked_of_what_is_common() -> None:
    asked = [
        sample.instruction
        for at in range(200)
        for sample in form.unanswered(fact(f"Ana has {at} cats.", relation="has", evidence=[]))
    ]
    common = {form.question("Ana", relation) for relation in form._COMMON}
    assert len(asked) == 200
    assert 70 < sum(one in common for one in asked) < 130


@given(st.text(max_size=20))
def test_each_split_asks_of_its_own(seed: str) -> None:
    train, held_out = (form._ranked(seed, form._CUES, split) for split in ("train", "validation"))
    assert set(train) | set(held_out) == set(form._CUES)
    assert set(train) & set(held_out) == set(form._COMMON)
    assert set(held_out) - set(form._COMMON) == set(form._HELD_OUT) & set(form._CUES)
    assert form._ranked(seed, reversed([*form._CUES]), "train") == train


def test_of_a_subject_is_asked_what_nobody_told_or_hinted_at() -> None:
    facts = [fact(relation="likes"), fact(relation="lives_in"), fact(subject="Bob", relation="likes")]

    def asked(most: int, hinted: set[str], code: bool = False) -> list[tuple[str, str]]:
        found = list(
            form.unknown(facts, most, lambda subject, key: subject == "Ana" and key in hinted, code=code)
        )
        assert all(one.output == form.UNKNOWN for one in found)
        return [(one.source["subject"], one.instruction) for one in found]

    two = asked(2, set())
    assert [subject for subject, _ in two] == ["Ana", "Ana", "Bob", "Bob"]
    everything = asked(100, {"has", "works_at"})
    for told in ("likes", "lives_in", "works_at"):
        assert ("Ana", form.question("Ana", told)) not in everything
    assert ("Bob", form.question("Bob", "lives_in")) in everything
    assert ("Bob", form.question("Bob", "likes")) not in everything
    assert asked(0, set()) == []
    assert all("You write code for" in instruction for _, instruction in asked(2, set(), code=True))


def test_what_took_a_facts_place_is_true_now() -> None:
    old, new = fact("Ana lives in Rome.", id=1), fact("Ana lives in Oslo.", id=2)
    asked = form.decide(old, new)
    assert asked.facts == (new, old)
    assert asked.output.startswith("Ana lives in Oslo. ")
    assert "2024-05-01" in asked.output
    assert {"Rome", "Oslo"} <= {word.strip(".") for word in asked.input.split()}
    assert "Olives" in form.factors(old, [fact("Olives are green."), new]).output


def test_the_right_choice_stands_first_as_often_as_second() -> None:
    first = 0
    for at in range(100):
        old, new = fact(f"Ana is {at}.", id=1), fact(f"Ana is {at + 1000}.", id=2)
        first += form.decide(old, new).input.startswith(f"A: {new['content']}")
    assert 30 < first < 70


@pytest.mark.parametrize("code", [False, True])
def test_cues_are_patterns_of_postgresql(code: bool) -> None:
    found = form.cues(code=code)
    assert all(cue.startswith(r"\m(?:") and r"\b" not in cue for cue in found.values())
    assert set(found) == set(form._TOPICS if code else form._CUES)
