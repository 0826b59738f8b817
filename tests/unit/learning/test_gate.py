"""What stays out of training, and whether a pair is judged so."""

from __future__ import annotations

from typing import Any

import pytest
from mindful.core.ports import Row
from mindful.learning import sample
from mindful.learning.form import Sample
from mindful.learning.gate import reasons


def fact(number: int = 1, **changed: Any) -> Row:
    found = {
        "id": number,
        "relation": "likes",
        "content": "Ana likes olives.",
        "evidence": [{"source_id": 1, "quote": "I love olives"}],
        "valid": True,
        "split": "train",
        "confidence": 0.9,
        "curated": False,
        "question": None,
    }
    return found | changed


def of(form: str = "recall", *facts: Row, given: str = "", output: str = "Ana likes olives.") -> Sample:
    return Sample(form, "What does Ana like?", given, output, facts or (fact(),))


@pytest.fixture(autouse=True)
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which texts hold a secret is the libraries' to say, and the server's tests try them."""
    monkeypatch.setattr(sample, "reasons", lambda text: ["secret"] if "password" in text else [])


def judged(*samples: Sample, consent: bool = True, fits: bool = True) -> list[tuple[str, ...]]:
    checks: list[int] = []
    found = sample._judged(samples, consent=consent, fits=lambda _: fits, check=lambda: checks.append(1))
    refused = [one.refused for one in found]
    assert len(checks) == len(samples)
    return refused


def test_a_good_pair_passes() -> None:
    assert judged(of()) == [()]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (of(output="The password is 1234."), "secret"),
        (of("recall", fact(evidence=[])), "no_evidence"),
        (of("recall", fact(), fact(2, evidence=[])), "no_evidence"),
        (of("recall", fact(valid=False)), "not_valid"),
        (of("factors", fact(), fact(2, valid=False)), "not_valid"),
        (of("decide", fact(valid=False), fact(2)), "not_valid"),
        (of("recall", fact(relation="plans")), "volatile"),
        (of("recall", fact(content="Ana leaves tomorrow.")), "volatile"),
        (of("abstain", fact(relation="age"), given="words"), "volatile"),
        (of("factors", fact(), fact(2, split="validation")), "mixed_split"),
    ],
)
def test_a_pair_is_refused_with_its_reason(one: Sample, reason: str) -> None:
    assert judged(one) == [(reason,)]


@pytest.mark.parametrize(
    "one",
    [
        of("decide", fact(), fact(2, valid=False)),
        of("abstain", fact(relation="age")),
    ],
)
def test_what_is_told_of_an_old_fact_or_of_none_may_be_so(one: Sample) -> None:
    assert judged(one) == [()]


def test_one_instruction_has_one_output_whatever_its_case() -> None:
    other = Sample("recall", "WHAT does Ana like?", "", "ANA likes olives.", (fact(),))
    assert judged(of(), other, of(output="Olives.")) == [(), ("duplicate",), ("second_output",)]


def test_consent_and_length_are_asked_of_all() -> None:
    assert judged(of(), consent=False) == [("no_consent",)]
    assert judged(of(), fits=False) == [("too_long",)]


@pytest.mark.parametrize(("length", "found"), [(2001, ["too_long"]), (5000, ["too_long"])])
def test_long_texts_are_not_looked_through(length: int, found: list[str]) -> None:
    assert list(reasons("x" * length)) == found


def test_a_row_hides_what_is_secret_and_is_as_sure_as_its_least_sure_fact() -> None:
    facts = (fact(3, confidence=0.9), fact(5, confidence=0.4), fact(7, confidence=0.6))
    row = sample._row(2, Sample("factors", "a", "b", "c", facts))
    assert (row["number"], row["source_id"], row["neighbor_ids"]) == (2, 3, [5, 7])
    assert (row["confidence"], row["split"], row["refused"]) == (0.4, "train", [])
    assert (row["instruction"], row["input"], row["output"]) == ("a", "b", "c")
    for reason in ("secret", "personal"):
        hidden = sample._row(0, Sample("recall", "a", "b", "c", facts, (reason,)))
        assert (hidden["instruction"], hidden["input"], hidden["output"]) == (None, None, None)
    assert sample._row(0, Sample("recall", "a", "b", "c", facts, ("volatile",)))["output"] == "c"
