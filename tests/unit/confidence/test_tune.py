"""Whether one value does better than another."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from mindful.confidence.calibrator import prior
from mindful.confidence.gold import Gold
from mindful.confidence.tune import (
    Trial,
    _Escalation,
    _log_likelihoods,
    _Memories,
    _sampling,
    _Temperature,
    _Tier,
    _tuned,
    _with,
    chance,
)
from mindful.conversation.prompt import Context
from mindful.core.ports import Sampling
from unit.confidence.asked import context_of, database
from unit.fakes import Answer, FakeDatabase


@pytest.mark.parametrize(("wins", "losses"), [(3, 0), (5, 0), (6, 1), (8, 4)])
def test_chance_is_the_exact_sign_test_where_answers_are_right_or_wrong(wins: int, losses: int) -> None:
    from scipy.stats import binomtest

    gains = [1.0] * wins + [-1.0] * losses + [0.0] * 20
    exact = binomtest(wins, wins + losses, alternative="greater").pvalue
    assert chance(gains) == pytest.approx(exact, abs=0.015)


def test_chance_errs_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    found = [chance(random.normal(size=40).tolist()) for _ in range(200)]
    assert sum(value <= 0.05 for value in found) <= 20
    assert chance([0.3] * 40) < 0.001


def test_many_gains_are_compared_in_little_memory_and_with_checks() -> None:
    checks: list[None] = []
    tracemalloc.start()
    try:
        chance([0.1] * 20_000, lambda: checks.append(None))
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    assert len(checks) > 50


def test_what_a_trial_tells_in_short() -> None:
    assert Trial([1.0, 0.0], [], [2.0, 4.0]).figures() == {"score": 0.5, "ms": 3.0}


def test_the_highest_tier_with_labels_enough_to_learn_and_to_test_is_tried() -> None:
    labels = {3: 59, 2: 60, 1: 90}
    db = FakeDatabase(
        {
            "_mindful.tuning_signals": lambda _model, tier: [
                {"outcome_id": at} for at in range(labels[tier])
            ],
            "last_outcome": [{"last": None}],
        }
    )
    assert list(_Tier(db, "m", 100).values()) == [0, 1, 2]


def knobs(
    current: object = False,
    by_hand: bool = False,
    last: int | None = None,
    **statements: Answer,
) -> FakeDatabase:
    """A database with labeled questions, and the value in force of a setting."""
    return FakeDatabase(
        {
            "last_outcome": [{"last": last}],
            "_mindful.tuning_current": [{"value": json.dumps(current), "by_hand": by_hand}],
            **{f"_mindful.{name}": rows for name, rows in statements.items()},
        }
    )


def chain(first: Sequence[float], both: Sequence[float]) -> list[dict[str, float]]:
    """Labeled answers of a model, and of it with its fallback."""
    return [
        {
            "outcome_id": at,
            "first_correct": one,
            "chain_correct": other,
            "first_ms": 10.0,
            "chain_ms": 30.0,
        }
        for at, (one, other) in enumerate(zip(first, both, strict=True), 1)
    ]


@pytest.mark.parametrize(
    ("count", "last", "limit", "sizes"),
    [
        (90, None, 100, (60, 30)),
        (89, None, 100, (59, 30)),
        (88, None, 100, (58, 30)),
        (90, 50, 100, (50, 40)),
        (90, 0, 100, (0, 90)),
        (200, None, 40, (40, 40)),
    ],
)
def test_older_labels_choose_and_newer_ones_test(
    count: int, last: int | None, limit: int, sizes: tuple[int, int]
) -> None:
    rows = chain([0] * count, [1] * count)
    knob = _Escalation(knobs(last=last, tuning_chain=rows), "m", limit)
    assert (len(knob.older), len(knob.newer)) == sizes
    ids = [row["outcome_id"] for row in (*knob.older, *knob.newer)]
    assert ids == sorted(ids)
    assert ids[-1] == count
    assert (knob.lacks is None) == (min(sizes) >= 30)
    assert knob.lacks in (
        None,
        f"30 older and 30 newer labels are needed, there are {sizes[0]} and {sizes[1]}",
    )


@pytest.mark.parametrize(
    ("current", "first", "both", "candidate", "adopted"),
    [
        (False, [0, 0, 1] * 30, [1, 1, 1] * 30, True, True),
        (False, [1] * 60 + [0, 1] * 15, [1] * 59 + [0] + [1] * 30, None, False),
        (False, [0] + [1] * 89, [1] * 90, True, False),
        (True, [1] * 90, [1] * 90, None, False),
        (True, [1, 1, 1] * 30, [0, 1, 1] * 30, False, True),
    ],
)
def test_a_value_is_adopted_that_does_better_on_older_and_on_newer_labels(
    current: bool, first: list[int], both: list[int], candidate: bool | None, adopted: bool
) -> None:
    db = knobs(current, tuning_chain=chain(first, both))
    found = _tuned(db, _Escalation(db, "m", 100))
    assert (found.key, found.current_value) == ("chat_escalate", current)
    assert (found.candidate, found.adopted) == (candidate, adopted)
    assert found.evidence["labels"] == [60, 30]
    assert found.evidence["chosen"] == {
        name: {"score": round(sum(scores[:60]) / 60, 4), "ms": ms}
        for name, scores, ms in (("false", first, 10), ("true", both, 30))
    }
    if candidate is None:
        assert found.reason == f"no value does better than {current} on the older labels"
        assert "tested" not in found.evidence
    else:
        assert set(found.evidence["tested"]) == {"true", "false"}
        assert (found.evidence["p"] <= 0.05) == adopted
        assert found.reason.endswith(f"on 30 newer labels, p = {found.evidence['p']:.4f}")


def test_what_the_user_set_is_not_changed_and_what_has_few_labels_waits() -> None:
    rows = chain([0] * 90, [1] * 90)
    db = knobs(by_hand=True, tuning_chain=rows)
    found = _tuned(db, _Escalation(db, "m", 100))
    assert (found.adopted, found.candidate, found.evidence) == (False, None, {})
    assert "user set" in found.reason
    db = knobs(tuning_chain=rows[:60])
    found = _tuned(db, _Escalation(db, "m", 100))
    assert (found.adopted, found.reason) == (
        False,
        "30 older and 30 newer labels are needed, there are 40 and 20",
    )


def test_a_value_in_force_that_is_not_among_those_to_try_is_tried_too() -> None:
    assert list(_with((0, 1, 3), 3)) == [0, 1, 3]
    assert list(_with((0, 1, 3), 5)) == [0, 1, 3, 5]


def test_each_question_has_a_seed_of_its_own_but_where_nothing_is_drawn() -> None:
    assert _sampling({"outcome_id": 7}, 16, 0.0) == Sampling(16, 0.0, None)
    assert _sampling({"outcome_id": 7}, 16, 0.5) == Sampling(16, 0.5, 7)
    assert _sampling({"outcome_id": 2**31 + 3}, 16, 0.5).seed == 3


def signal(at: int, with_memory: bool, telling: bool = True) -> dict[str, Any]:
    """A labeled answer whose question tells whether it is right, if anything does."""
    right = at % 3 > 0
    return {
        "outcome_id": at,
        "with_memory": with_memory,
        "correct": right,
        "propensity": 1.0,
        "source": f"source {at}",
        "signals": json.dumps({"logprob_sum": -1.0 - at % 5, "question_similarity": float(right == telling)}),
        "signal_ms": json.dumps({"free": 1, "question": 5, "second": 40}),
    }


def test_signals_are_paid_for_where_they_tell_what_is_right() -> None:
    rows = [signal(at, at % 2 > 0) for at in range(240)]
    knob = _Tier(knobs(tuning_signals=lambda _model, tier: rows if tier == 1 else []), "m", 500)
    assert list(knob.values()) == [0, 1]
    free, asked = (knob.trial(tier, knob.newer, knob.older) for tier in (0, 1))
    assert (set(free.ms), set(asked.ms)) == ({0}, {5})
    assert len(free.scores) == len(asked.scores) == len(knob.newer)
    assert all(score < 0 for score in (*free.scores, *asked.scores))
    assert asked.mean() > free.mean() + 0.2
    # By cross-validation, an answer's own label does not count for it.
    assert knob.trial(1, knob.older, knob.older).mean() > knob.trial(0, knob.older, knob.older).mean() + 0.2


def test_few_labels_of_a_kind_are_scored_by_their_share() -> None:
    rows = [signal(at, False) for at in range(20)]
    right = sum(row["correct"] for row in rows)
    found = _log_likelihoods(rows, None, ["logprob_sum"], lambda: None)
    share = prior(right, 20)
    assert list(found) == pytest.approx([math.log(share if row["correct"] else 1 - share) for row in rows])
    assert list(_log_likelihoods(rows, [], ["logprob_sum"], lambda: None)) == []


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_questions_are_answered_again_with_the_value_and_graded(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[Any, ...]] = []

    class Answering:
        """Composes prompts without recall."""

        def __init__(self, _db: object, *given: Any) -> None:
            self.given = given

        def context(self, gold: Gold) -> Context:
            shown.append((*self.given, gold))
            return context_of(gold.question, *gold.memories or ())

    monkeypatch.setattr("mindful.confidence.tune.Answering", Answering)
    rows = [
        {
            "outcome_id": at,
            "question": f"Question {at}?",
            "answers": ["yes"],
            "source": "",
            "memories": ["It is yes."] if at % 2 else [],
        }
        for at in range(1, 101)
    ]
    graded: list[list[Any]] = []

    def grade(given: str) -> list[dict[str, int]]:
        graded.extend(json.loads(given))
        return [{"score": int(text == answers[0])} for text, answers in json.loads(given)]

    db = database(
        {
            "_mindful.tuning_gold": rows,
            "select from mindful.memory": [{"one": 1}],
            "mindful.setting_get($1, $2)": lambda key, _: [
                {"value": json.dumps({"chat_temperature": 0, "chat_memories": 3}[key])}
            ],
            "last_outcome": [{"last": None}],
            "_mindful.answer_grade": grade,
        },
        m={"default": "no way", "replies": [["Question 7?", "yes"], ["Question 8?", "yes"]]},
    )
    knob = _Temperature(db, "m", 500, 16)
    assert list(knob.values()) == [0.0, 0.3, 0.7, 1.0]
    found = knob.trial(temperature, rows, rows)
    assert [at for at, score in enumerate(found.scores, 1) if score] == [7, 8]
    assert [text for text, _ in graded] == ["yes" if at in (7, 8) else "no way" for at in range(1, 101)]
    assert list(found.tokens) == [1 if at in (7, 8) else 2 for at in range(1, 101)]
    assert len(found.ms) == 100
    assert [(model, memories, tier) for model, _, memories, tier, _ in shown] == [("m", 3, 0)] * 100
    assert {sampling.temperature for _, sampling, *_ in shown} == {temperature}
    assert [gold.memories for *_, gold in shown] == [row["memories"] or None for row in rows]
    assert min(found.ms) > 0
    assert len(_Memories(db, "m", 500, 16).trial(1, rows[:2], rows).scores) == 2
    assert (shown[-1][1].temperature, shown[-1][2]) == (0, 1)
    # Questions with memories of their own tell nothing of how many to recall.
    assert {row["outcome_id"] % 2 for row in _Memories(db, "m", 500, 16).older} == {0}
    db.answers["select from mindful.memory"] = []
    assert _Memories(db, "m", 500, 16).older == []
