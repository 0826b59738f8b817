"""Whether one value does better than another."""

from __future__ import annotations

import numpy as np
import pytest
from mindful.confidence.tune import Trial, _Tier, chance
from unit.fakes import FakeDatabase


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
