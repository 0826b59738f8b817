"""Training pairs: which are refused, and that no text stands behind both what is trained on and what is held out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.core.errors import NotReadyError
from mindful.learning.extraction import VOLATILE
from mindful.learning.form import Sample
from mindful.learning.sample import (
    _chosen,
    _fits,
    _hints,
    _is_held_out,
    _judged,
    _linked,
    _row,
    _user_name,
    _with_splits,
)
from unit.fakes import FakeDatabase, scripted


@given(st.lists(st.sets(st.integers(1, 60), max_size=4), max_size=40))
def test_sources_are_in_one_part(sources: list[set[int]]) -> None:
    facts = _with_splits(
        [{"evidence": [{"source_id": source} for source in own], "curated": False} for own in sources]
    )
    parts = {
        split: {
            source
            for fact, own in zip(facts, sources, strict=True)
            if fact["split"] == split
            for source in own
        }
        for split in ("train", "validation")
    }
    assert not parts["train"] & parts["validation"]


def test_what_is_told_once_is_held_out_by_its_source() -> None:
    facts = _with_splits([{"evidence": [{"source_id": source}]} for source in range(1, 1001)])
    assert [fact["split"] == "validation" for fact in facts] == [_is_held_out(at) for at in range(1, 1001)]
    assert 70 < sum(fact["split"] == "validation" for fact in facts) < 140


def test_many_that_hang_together_are_trained_on() -> None:
    held_out = next(source for source in range(1, 100) if _is_held_out(source))
    chain = [
        {"evidence": [{"source_id": held_out + at}, {"source_id": held_out + at + 1}]} for at in range(10)
    ]
    apart = [{"evidence": [{"source_id": 1000 + at}, {"source_id": 2000 + at}]} for at in range(90)]
    splits = [fact["split"] for fact in _with_splits(chain + apart)]
    assert set(splits[:10]) == {"validation"}
    assert set(splits[10:]) == {"train", "validation"}
    assert {fact["split"] for fact in _with_splits(chain)} == {"train"}


def fact(**known: Any) -> dict[str, Any]:
    """A fact that may be trained on."""
    return {
        "id": 1,
        "subject": "The user",
        "relation": "lives_in",
        "object": "Oslo",
        "content": "The user lives in Oslo.",
        "evidence": [{"source_id": 1}],
        "curated": False,
        "valid": True,
        "split": "train",
        "confidence": 0.9,
    } | known


def sample(*facts: dict[str, Any], **known: Any) -> Sample:
    """A pair that may be trained on."""
    given = {"form": "recall", "instruction": "Where does the user live?", "input": "", "output": "Oslo."}
    return Sample(**given | known, facts=facts or (fact(),))


def refusals(*samples: Sample, consent: bool = True, fits: bool = True) -> list[tuple[str, ...]]:
    """Why samples are refused."""
    return [one.refused for one in _judged(samples, consent=consent, fits=lambda _: fits, check=lambda: None)]


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (sample(), ()),
        (sample(fact(evidence=[])), ("no_evidence",)),
        (sample(fact(evidence=[], curated=True)), ()),
        (sample(fact(), fact(evidence=[])), ("no_evidence",)),
        (sample(fact(valid=False)), ("not_valid",)),
        (sample(fact(), fact(valid=False)), ("not_valid",)),
        (sample(fact(), fact(valid=False), form="decide"), ()),
        (sample(fact(valid=False), fact(), form="decide"), ("not_valid",)),
        (sample(fact(content="The user moves to Oslo tomorrow.")), ("volatile",)),
        (sample(fact(content="The user moves to Oslo tomorrow."), form="abstain"), ()),
        (sample(fact(content="The user moves to Oslo tomorrow."), form="abstain", input="A."), ("volatile",)),
        (sample(*(fact(relation=name) for name in sorted(VOLATILE)[:1])), ("volatile",)),
        (sample(fact(), fact(split="validation")), ("mixed_split",)),
        (sample(refused=("too_long",)), ("too_long",)),
        (sample(refused=("other",)), ("other",)),
        (sample(output="My password is hunter2-Xk9!qZ."), ("secret",)),
    ],
)
def test_a_pair_is_refused_for_what_its_facts_or_its_text_lack(
    given: Sample, refused: tuple[str, ...]
) -> None:
    assert refusals(given) == [refused]


def test_without_consent_nothing_is_trained_on_and_what_is_too_long_is_said_once() -> None:
    assert refusals(sample(), consent=False) == [("no_consent",)]
    assert refusals(sample(), fits=False) == [("too_long",)]
    assert refusals(sample(refused=("too_long",)), fits=False) == [("too_long",)]


def test_a_question_has_one_answer_and_the_first_that_is_not_refused() -> None:
    same = sample(instruction="WHERE does the user live?", output="OSLO.")
    other = sample(output="Bergen.")
    assert refusals(sample(), same, other) == [(), ("duplicate",), ("second_output",)]
    refused = sample(fact(valid=False))
    assert refusals(refused, other, sample()) == [("not_valid",), (), ("duplicate",)]
    assert refusals(sample(input="A."), sample(input="B.", output="Rome.")) == [(), ()]


def test_cancels_are_heard_before_each_pair() -> None:
    heard: list[None] = []
    list(_judged([sample()] * 5, consent=True, fits=lambda _: True, check=lambda: heard.append(None)))
    assert len(heard) == 5


@pytest.mark.parametrize(
    ("setting", "facts", "name"),
    [
        (None, [], None),
        ("Ana", [fact(relation="name", object="Eva")], "Ana"),
        (None, [fact(), fact(relation="name", object="Eva"), fact(relation="name", object="Ida")], "Eva"),
        (None, [fact(subject="Rex", relation="name", object="Rex")], None),
    ],
)
def test_the_users_name_is_the_settings_or_what_a_fact_says(
    setting: str | None, facts: list[dict[str, Any]], name: str | None
) -> None:
    db = FakeDatabase({"setting_get('user_name')": [{"value": json.dumps(setting)}]})
    assert _user_name(db, facts) == name


def test_a_pair_with_a_secret_is_counted_without_its_words() -> None:
    two = sample(fact(id=3, confidence=0.9), fact(id=4, confidence=0.4), output="Oslo.")
    row = _row(7, two)
    assert (row["number"], row["source_id"], row["neighbor_ids"], row["confidence"]) == (7, 3, [4], 0.4)
    assert (row["instruction"], row["output"], row["split"]) == (two.instruction, "Oslo.", "train")
    for reason, hidden in (("secret", True), ("personal", True), ("volatile", False)):
        row = _row(1, two._replace(refused=(reason,)))
        assert row["refused"] == [reason]
        assert [row[name] is None for name in ("instruction", "input", "output")] == [hidden] * 3


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([], "no new facts"),
        (
            [fact(below="confidence"), fact(below="rank"), fact(below="rank")],
            "1 below confidence, 2 below rank",
        ),
    ],
)
def test_a_run_without_facts_says_what_they_lack(rows: list[dict[str, Any]], error: str) -> None:
    rows = [row | {"evidence": None} for row in rows]
    with pytest.raises(NotReadyError, match=error):
        _chosen(FakeDatabase({"_mindful.replay_facts": rows}), "{}", "m")


@pytest.mark.parametrize(("longest", "fits"), [(None, True), (200, True), (3, False)])
def test_a_pair_fits_a_models_sequence_with_its_prompts(longest: int | None, fits: bool) -> None:
    db = FakeDatabase(
        {"max_sequence_length as most": [{"most": longest}]}, scripted(m={"context_length": 128})
    )
    judge = _fits(db, "m")
    assert judge(sample()) == fits
    assert not judge(sample(input="word " * 150))


def test_facts_are_linked_within_their_part_and_asked_for_once() -> None:
    facts = [fact(id=at, split=split) for at, split in ((1, "train"), (2, "train"), (3, "validation"))]
    near = [{"id": 2}, {"id": 3}, {"id": 9}]
    db = FakeDatabase({"_mindful.replay_neighbors": near})
    assert [one["id"] for one in _linked(db, facts[0], {one["id"]: one for one in facts})] == [2]
    assert db.arguments_of("replay_neighbors") == [(1, 3)]


def test_a_text_that_hints_at_an_answer_is_known_by_person_and_question() -> None:
    people = ["The user", "Marta's dog", "Tom and others"]
    db = FakeDatabase(
        {"jsonb_each_text": [{"person": "Marta", "key": "likes"}, {"person": "Tom", "key": "age"}]}
    )
    hinted = _hints(db, [fact(subject=name) for name in people], {"likes": "lik", "age": "old"})
    assert [(name, key) for name in people for key in ("likes", "age") if hinted(name, key)] == [
        ("Marta's dog", "likes"),
        ("Tom and others", "age"),
    ]
    assert db.arguments_of("jsonb_each_text") == [
        (json.dumps({"likes": "lik", "age": "old"}), ["Marta", "The user", "Tom"])
    ]
