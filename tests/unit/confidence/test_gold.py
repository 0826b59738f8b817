"""Questions whose answers are known: which are read, and what a way gains on them."""

from __future__ import annotations

import gc
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.confidence.calibration import calibrate
from mindful.confidence.gold import parse
from mindful.confidence.measure import Pair, action_evaluate, gain
from mindful.confidence.tune import Trial, confidence_tune
from mindful.core.errors import (
    ContextLengthError,
    InvalidParameterError,
    MindfulError,
    NotReadyError,
    NullValueError,
)
from unit.confidence.asked import database
from unit.fakes import wrapped

TEXT = st.text(min_size=1).filter(lambda text: text.strip(" \t\n\r"))


@given(st.lists(st.tuples(TEXT, st.lists(TEXT, max_size=2), st.none() | st.lists(TEXT, max_size=2))))
def test_questions_are_read_in_their_order(items: list[tuple[str, list[str], list[str] | None]]) -> None:
    given = [
        {"question": question, "answers": answers, "memories": notes} for question, answers, notes in items
    ]
    found = parse(json.dumps(given), "quiz")
    assert [(one.question, one.answers, one.memories) for one in found] == items
    assert [one.item for one in found] == list(range(1, len(items) + 1))
    assert {one.source for one in found} <= {"quiz"}


def test_cancels_are_heard_while_questions_are_read_and_too_many_are_refused() -> None:
    heard: list[None] = []
    item = {"question": "a", "answers": ["b"]}
    assert len(parse(json.dumps([item] * 99), "", lambda: heard.append(None))) == len(heard) == 99
    gc.enable()
    with pytest.raises(ContextLengthError, match="4194304"):
        parse(json.dumps([item] * 200_000), "")
    parse(json.dumps([item] * 100_000), "")
    assert gc.isenabled()


def test_an_item_may_have_a_source_of_its_own() -> None:
    items = [{"question": "a", "answers": [], "source": "mine"}, {"question": "b", "answers": []}]
    assert [one.source for one in parse(json.dumps(items), "quiz")] == ["mine", "quiz"]


@pytest.mark.parametrize(
    "broken",
    [
        3,
        {},
        {"question": "a"},
        {"answers": []},
        {"question": "a", "answers": "b"},
        {"question": " \n", "answers": []},
        {"question": 3, "answers": []},
        {"question": "a", "answers": [" "]},
        {"question": "a", "answers": [3]},
        {"question": "a", "answers": [], "memories": "b"},
        {"question": "a", "answers": [], "memories": [""]},
        {"question": "a", "answers": [], "source": 3},
        {"question": "a", "answers": [], "other": 3},
    ],
)
def test_a_broken_item_is_named_by_its_number(broken: Any) -> None:
    with pytest.raises(InvalidParameterError, match="item 2"):
        parse(json.dumps([{"question": "a", "answers": ["b"]}, broken]), "")


@pytest.mark.parametrize("text", ["{}", "3", "null", "[" * 100_000])
def test_what_is_no_array_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        parse(text, "")


PAIR = st.builds(Pair, st.booleans(), st.booleans(), st.booleans())


@given(st.lists(PAIR))
def test_a_gain_counts_changed_answers_alone(pairs: list[Pair]) -> None:
    answers, changed, gained, lost, p_value, helps = gain(pairs)
    assert answers == len(pairs) >= changed >= gained + lost
    assert gained == sum(pair == Pair(True, False, True) for pair in pairs)
    assert lost == sum(pair == Pair(True, True, False) for pair in pairs)
    assert 0 < p_value <= 1
    assert helps == (p_value <= 0.1)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (3, 0), (4, 0), (7, 2), (2, 7), (30, 20)])
def test_a_gain_is_the_exact_sign_test(gained: int, lost: int) -> None:
    from scipy.stats import binomtest

    pairs = [Pair(True, False, True)] * gained + [Pair(True, True, False)] * lost
    exact = binomtest(gained, gained + lost, alternative="greater").pvalue if pairs else 1.0
    assert gain(pairs)[4] == pytest.approx(exact)


def calibrated(budget: Any = 0.1, delta: Any = 0.1, kind: Any = "answers") -> Any:
    db = database(
        {"_mindful.lineage_list": [{"ways": [], "second_model": None}], "_mindful.labeled(": []}, first={}
    )
    return wrapped(calibrate)(db, None, budget, delta, kind)


def tuned(questions: Any, tokens: Any) -> Any:
    return wrapped(confidence_tune)(database(first={}), None, questions, tokens)


def evaluated(action: Any, answers: Any) -> Any:
    return wrapped(action_evaluate)(database(first={}), action, None, answers, 16)


@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        (calibrated, (None,), NullValueError),
        (calibrated, (0.1, None), NullValueError),
        (calibrated, (0.1, 0.1, None), NullValueError),
        (calibrated, (0,), InvalidParameterError),
        (calibrated, (1,), InvalidParameterError),
        (calibrated, (float("nan"),), InvalidParameterError),
        (calibrated, (0.1, 0), InvalidParameterError),
        (calibrated, (0.1, 1), InvalidParameterError),
        (calibrated, (0.1, 0.1, "all"), InvalidParameterError),
        (calibrated, (0.001, 0.999, "questions"), NotReadyError),
        (tuned, (None, 1), NullValueError),
        (tuned, (30, None), NullValueError),
        (tuned, (29, 1), InvalidParameterError),
        (tuned, (30, 0), InvalidParameterError),
        (tuned, (100_001, 1), InvalidParameterError),
        (tuned, (30, 100_001), InvalidParameterError),
        (evaluated, (None, 1), NullValueError),
        (evaluated, ("retry", None), NullValueError),
        (evaluated, ("guess", 1), InvalidParameterError),
        (evaluated, ("retry", 0), InvalidParameterError),
        (evaluated, ("retry", 10_001), InvalidParameterError),
    ],
)
def test_bad_arguments_are_refused(call: Any, arguments: tuple[Any, ...], error: type[MindfulError]) -> None:
    with pytest.raises(error):
        call(*arguments)


def test_bounds_are_allowed() -> None:
    for arguments in ((30, 1), (100_000, 100_000)):
        with pytest.raises(AssertionError, match="unexpected statement"):  # the next thing that is asked
            tuned(*arguments)
    for most in (1, 10_000):
        with pytest.raises(AssertionError, match="unexpected statement"):
            evaluated("retrieve", most)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_a_mean_lies_between_the_scores(scores: list[float]) -> None:
    assert min(scores) - 1e-9 <= Trial(scores, [], []).mean() <= max(scores) + 1e-9
