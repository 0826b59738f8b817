"""Rankings of the package order answers before there are labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from mindful.confidence import ranking
from mindful.confidence.action import PROBABLE, SHARE_OF_IMPROBABLE
from mindful.confidence.calibrator import Calibrator
from mindful.confidence.decision import decide
from mindful.confidence.lineage import Lineage
from mindful.confidence.ranking import Ranking
from mindful.confidence.signal import features
from mindful.confidence.threshold import Draws, certify, levels
from unit.confidence.asked import database
from unit.confidence.test_calibration import Labels, labels

ENTRY: Mapping[str, Any] = {
    "sha256": "cafe",
    "name": "first",
    "form": "chat",
    "with_memory": False,
    "signal_tier": 0,
    "features": ["logprob_sum"],
    "means": [0.0],
    "scales": [1.0],
    "weights": [3.0],
    "intercept": 0.0,
    "labels": 98,
    "right": 49,
}


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ship a ranking of the scripted model."""
    entries = ranking.read([ENTRY])
    monkeypatch.setattr(ranking, "shipped", lambda: entries)


@pytest.fixture
def thresholds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the bound of the error above a threshold: it takes half of the time, and decides nothing."""
    monkeypatch.setattr(Draws, "bound", lambda draws, delta: 1.0)


def test_the_file_of_the_package_can_be_read() -> None:
    assert all(one.labels >= one.right for one in ranking.shipped().values())


def test_rankings_of_the_package_read_the_signals_of_today() -> None:
    for (_, _, with_memory, tier), one in ranking.shipped().items():
        assert set(one.calibrator.features) <= set(features(tier, with_memory))
        assert not with_memory or {"stated", "conveyed", "of_kind"} <= set(one.calibrator.features)


@pytest.mark.usefixtures("shipped")
def test_the_first_answers_are_ordered_by_what_was_shipped() -> None:
    db = database(first={})
    good, bad = (decide(db, Lineage("first"), False, {"logprob_sum": value}) for value in (1.0, -1.0))
    assert good.probability > 0.9 > 0.1 > bad.probability
    assert good.action == bad.action == "uncalibrated"
    assert good.calibrator_id is None
    # not of another kind of prompt, another form, or another way
    assert decide(db, Lineage("first"), True, {"logprob_sum": 1.0}).probability == 0.5
    assert decide(db, Lineage("first", ("retry",)), False, {"logprob_sum": 1.0}).probability == 0.5
    own = database(first={"template": "Q: {{ message }}"})
    assert decide(own, Lineage("first"), False, {"logprob_sum": 1.0}).probability == 0.5


def test_labels_move_the_base_rate_and_not_the_order() -> None:
    [shipped] = ranking.read([ENTRY]).values()
    unmoved, lower, far = (shipped.updated(*counts) for counts in ((0, 0), (20, 0), (2000, 20)))
    assert unmoved.intercept == pytest.approx(0)
    assert lower.intercept == pytest.approx(-math.log(3))  # (20 x 0.5 + 0) / (20 + 20) = 1/4
    assert 1 / (1 + math.exp(-far.intercept)) == pytest.approx(0.0148, abs=0.001)
    assert lower.weights == shipped.calibrator.weights


@pytest.mark.usefixtures("shipped")
def test_few_labels_all_certify_a_shipped_ranking() -> None:
    rows = labels(60)
    db = Labels(rows)
    (found,) = db.calibrated(0.3)
    [stored] = db.fitted
    assert (stored["origin"], stored["labels"], stored["weights"]) == ("shipped", 98, [3.0])
    assert db.certified[-1]["labels"] == 60
    assert found["status"] == "certified"
    assert 0.1 < found["coverage"] < 1


@pytest.mark.usefixtures("shipped")
def test_a_shipped_ranking_has_no_threshold_of_its_own() -> None:
    db = Labels(labels(5))
    (found,) = db.calibrated(0.3)
    assert (found["status"], found["threshold"]) == ("infeasible", None)
    assert found["more_labels"] is not None


@pytest.mark.usefixtures("thresholds_alone")
def test_thresholds_of_a_shipped_ranking_break_the_budget_as_rarely_as_promised() -> None:
    """Where the tenant's questions are harder, and the ranking is worse than it was."""
    [shipped] = ranking.read([ENTRY]).values()
    random = np.random.default_rng(0)
    signal = random.normal(size=20_000)
    right = random.random(20_000) < 1 / (1 + np.exp(-(2.5 * signal - 0.5)))
    broken = certified = 0
    for seed in range(200):
        chosen = np.random.default_rng(seed).integers(0, 20_000, 80)
        moved = shipped.updated(80, int(right[chosen].sum()))
        said = 1 / (1 + np.exp(-(3 * signal + moved.intercept)))
        draws = Draws(right[chosen], np.ones(80), chosen)
        grid = levels(said[chosen], said[chosen], 0.3, 0.075, 80)
        value = certify(said[chosen], draws, grid, 0.3, 0.075).value
        if value is not None:
            certified += 1
            broken += (~right[said >= value]).mean() > 0.3
    assert certified > 100
    assert broken <= 20


@pytest.mark.usefixtures("thresholds_alone")
def test_labels_by_chance_certify_sooner_and_break_the_budget_as_rarely() -> None:
    """As `_offer` draws them: each probable answer, and a quarter of the others, by the ranking of the time."""
    [shipped] = ranking.read([ENTRY]).values()
    random = np.random.default_rng(0)
    signal = random.normal(size=20_000)
    right = random.random(20_000) < 1 / (1 + np.exp(-(2.5 * signal - 0.5)))
    certified = dict.fromkeys((SHARE_OF_IMPROBABLE, 1.0), 0)
    for share in certified:
        broken = 0
        for seed in range(200):
            value, moved = _drawn(shipped, signal, right, 35, share, np.random.default_rng(seed))
            if value is not None:
                certified[share] += 1
                broken += (~right[1 / (1 + np.exp(-(3 * signal + moved.intercept))) >= value]).mean() > 0.3
        assert broken <= 20
    assert certified[SHARE_OF_IMPROBABLE] > 1.3 * certified[1.0] > 0


def _drawn(
    shipped: Ranking, signal: Any, right: Any, count: int, share: float, random: np.random.Generator
) -> tuple[float | None, Calibrator]:
    chosen: list[int] = []
    weights: list[float] = []
    moved = shipped.calibrator
    while len(chosen) < count:
        one = int(random.integers(0, len(signal)))
        drawn = 1.0 if 1 / (1 + np.exp(-(3 * signal[one] + moved.intercept))) >= PROBABLE else share
        if random.random() < drawn:
            chosen.append(one)
            weights.append(1 / drawn)
            moved = shipped.updated(len(chosen), np.average(right[chosen], weights=weights) * len(chosen))
    said = 1 / (1 + np.exp(-(3 * signal[chosen] + moved.intercept)))
    draws = Draws(right[chosen], np.array(weights), np.arange(count))
    grid = levels(said, said, 0.3, 0.075, draws.effective(), draws.weights)
    return certify(said, draws, grid, 0.3, 0.075).value, moved
