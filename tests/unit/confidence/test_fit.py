"""Calibrators learn from labels, and their figures are what they are said to be."""

import json
import time

import numpy as np
import pytest
from mindful.confidence import fit, metric
from mindful.confidence.calibrator import Calibrator, interpolated, prior
from mindful.confidence.fit import Labeled, labeled
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.metrics import log_loss as sklearn_log_loss

NAMES = ("logprob_sum", "echo", "noise")


def answers(count: int, seed: int = 0, groups: int | None = None) -> Labeled:
    """Answers of which those with a high logprob_sum and a low echo are mostly right."""
    random = np.random.default_rng(seed)
    signals = random.normal(size=(count, 3))
    odds = 1.5 * signals[:, 0] - signals[:, 1] - 0.5
    right = random.random(count) < 1 / (1 + np.exp(-odds))
    rows = [dict(zip(NAMES, row.tolist(), strict=True)) for row in signals]
    return labeled(
        rows, right.tolist(), None, None if groups is None else [str(at % groups) for at in range(count)]
    )


def test_weights_are_found_and_probabilities_are_right() -> None:
    calibrator = fit.fit(answers(1000), NAMES)
    weights = dict(zip(calibrator.features, calibrator.weights, strict=True))
    assert weights["logprob_sum"] > 0 > weights["echo"]
    assert abs(weights["noise"]) < 0.3 * weights["logprob_sum"]
    fresh = answers(5000, seed=1)
    said = fit.probabilities(calibrator, fresh)
    assert metric.auroc(fresh.right, said) > 0.8
    assert metric.calibration_error(fresh.right, said) < 0.05


def test_few_labels_take_up_few_signals() -> None:
    many = answers(40)
    few = many.at(np.append(np.flatnonzero(~many.right), np.flatnonzero(many.right)[:2]))
    assert few.rare == 2
    assert fit.fit(few, NAMES).features == ["logprob_sum", "echo"]
    assert fit.fit(answers(400), NAMES).features == list(NAMES)


def test_knots_need_many_labels_and_ascend() -> None:
    assert fit.fit(answers(900), NAMES).knots_x == ()
    calibrator = fit.fit(answers(1500), NAMES)
    assert len(calibrator.knots_x) == len(calibrator.knots_y) > 2
    assert np.all(np.diff(calibrator.knots_x) > 0)
    assert np.all(np.diff(calibrator.knots_y) >= 0)


def test_signals_that_do_not_vary_or_are_mostly_missing_are_left_out() -> None:
    found = answers(400)
    rows = [dict(row) | {"echo": 1.0} for row in found.signals]
    for row in rows[50:]:
        del row["noise"]
    assert fit.fit(labeled(rows, found.right.tolist()), NAMES).features == ["logprob_sum"]


def test_a_missing_signal_counts_as_its_mean() -> None:
    calibrator = Calibrator(["a", "b"], [1.0, 2.0], [2.0, 1.0], [3.0, -1.0], 0.5)
    assert calibrator.score({"a": 3.0}) == pytest.approx(3.5)
    assert calibrator.contributions({"b": 4.0}) == {"a": 0.0, "b": -2.0}
    for score, probability in ((800.0, 1.0), (-800.0, 0.0), (0.0, 0.5)):
        assert Calibrator([], [], [], [], score).probability({}) == pytest.approx(probability)


def test_knots_are_joined_by_lines_and_hold_beyond() -> None:
    xs, ys = (0.0, 1.0, 3.0), (0.1, 0.2, 0.8)
    values = np.linspace(-1, 4, 51)
    assert [interpolated(value, xs, ys) for value in values] == pytest.approx(
        np.interp(values, xs, ys).tolist()
    )


def test_an_answer_is_judged_by_what_did_not_see_it() -> None:
    found = answers(200, groups=20)
    for learned, told in fit.folds(found, seed=0):
        assert not set(found.groups[learned]) & set(found.groups[told])
    noise = labeled([{"noise": float(at)} for at in range(200)], (np.arange(200) % 2 == 0).tolist())
    figures = fit.validated(noise, ["noise"])
    assert figures["labels"] == 200
    assert figures["auroc"][0] < 0.6


@pytest.mark.filterwarnings("error")
def test_labels_of_one_kind_have_figures_that_json_has() -> None:
    alike = labeled([{"logprob_sum": -1.0}] * 3, [True] * 3)
    figures = fit.figures(alike, np.full(3, 0.8))
    assert figures["auroc"] == [None] * 3
    assert figures["brier"] == pytest.approx([0.04] * 3)
    json.dumps(figures, allow_nan=False)


def test_only_a_gain_takes_over() -> None:
    fresh = answers(300, seed=3)
    good, bad = fit.fit(answers(500), NAMES), Calibrator(["noise"], [0.0], [1.0], [1.0], 0.0)
    everything = [True] * 300
    assert fit.better(fit.probabilities(good, fresh), bad, fresh, everything)
    assert not fit.better(fit.probabilities(bad, fresh), good, fresh, everything)
    assert not fit.better(fit.probabilities(good, fresh), good, fresh, everything)


def test_figures_are_scikit_learns() -> None:
    found = answers(300)
    said = np.round(fit.probabilities(fit.fit(answers(300, seed=1), NAMES), found), 1)  # with ties
    assert metric.auroc(found.right, said) == pytest.approx(roc_auc_score(found.right, said))
    assert metric.brier(found.right, said) == pytest.approx(brier_score_loss(found.right, said))
    clipped = np.clip(said, 1e-6, 1 - 1e-6)
    assert metric.log_loss(found.right, said) == pytest.approx(sklearn_log_loss(found.right, clipped))


def test_weighted_figures_are_those_of_all_answers_that_a_random_share_stands_for() -> None:
    found = answers(20_000)
    said = fit.probabilities(fit.fit(answers(300, seed=1), NAMES), found)
    propensity = np.where(said > 0.8, 1.0, 0.1)
    labeled = np.random.default_rng(0).random(len(found)) < propensity
    right, weights = found.right[labeled], 1 / propensity[labeled]
    for measure in metric.MEASURES.values():
        whole = measure(found.right, said)
        assert measure(right, said[labeled], weights) == pytest.approx(whole, abs=0.02)
        some = right[:2000], said[labeled][:2000]  # an interval draws all of them again and again
        same = metric.interval(measure, *some, None, np.full(2000, 20.0))
        assert same == pytest.approx(metric.interval(measure, *some))
    assert metric.brier(right, said[labeled]) != pytest.approx(metric.brier(found.right, said), abs=0.01)
    assert roc_auc_score(right, said[labeled], sample_weight=weights) == pytest.approx(
        metric.auroc(right, said[labeled], weights)
    )


def test_calibration_error_of_known_bins() -> None:
    right = np.array([True, False] * 50)
    assert metric.calibration_error(right, np.full(100, 0.5)) == pytest.approx(0.0)
    assert metric.calibration_error(right, np.full(100, 0.8)) == pytest.approx(0.3)


@pytest.mark.filterwarnings("error")
def test_labels_of_one_kind_have_no_auroc_and_the_figures_stay_json() -> None:
    for right in (True, False):
        found = fit.labeled([{"logprob_sum": -float(at)} for at in range(6)], [right] * 6)
        figures = fit.figures(found, np.full(6, 0.7))
        assert figures["auroc"] == [None, None, None]
        assert figures["brier"][0] == pytest.approx(0.09 if right else 0.49)
        json.dumps(figures, allow_nan=False)
    rare = fit.labeled([{"logprob_sum": -float(at)} for at in range(6)], [True] * 5 + [False])
    assert None not in fit.figures(rare, np.linspace(0.9, 0.1, 6))["auroc"]


def test_an_interval_draws_groups_with_all_their_answers() -> None:
    right, pairs = np.arange(40) < 20, np.arange(40) % 20
    assert metric.interval(lambda one, _said, _mass: one.mean(), right, right * 1.0, pairs) == (0.5, 0.5, 0.5)


def test_intervals_hold_the_figure_and_groups_widen_them() -> None:
    found = answers(400, groups=4)
    said = fit.probabilities(fit.fit(answers(300, seed=1), NAMES), found)
    value, low, high = metric.interval(metric.auroc, found.right, said)
    assert low < value < high
    assert high - low < 0.15
    repeated = np.repeat(np.arange(100), 4)
    right, said = np.repeat(found.right[:100], 4), np.repeat(said[:100], 4)
    narrow, wide = (metric.interval(metric.brier, right, said, groups) for groups in (None, repeated))
    assert wide[2] - wide[1] > 1.5 * (narrow[2] - narrow[1])


def test_the_prior_follows_the_labels() -> None:
    assert prior(0, 0) == 0.5
    assert prior(0, 8) == pytest.approx(0.1)


def test_signals_that_are_all_alike_leave_the_base_rate() -> None:
    answers = fit.labeled([{"logprob_sum": -1.0}] * 40, [True] * 10 + [False] * 30)
    calibrator = fit.fit(answers, ["logprob_sum"])
    assert calibrator.features == []
    assert calibrator.probability({"logprob_sum": -1.0}) == pytest.approx(prior(10, 40))
    assert fit.out_of_fold(answers, ["logprob_sum"]) == pytest.approx(np.full(40, 0.25), abs=0.03)


def test_weights_are_scikit_learns() -> None:
    from sklearn.linear_model import LogisticRegression

    for seed, count, rare in ((0, 400, 1.0), (1, 60, 1.0), (2, 3000, 0.02)):
        random = np.random.default_rng(seed)
        values = random.normal(size=(count, 12))
        values[:, 11] = values[:, 0] + 0.01 * values[:, 11]  # signals are much alike
        right = random.random(count) < rare / (1 + np.exp(-3 * values[:, 0]))
        mass = random.uniform(0.5, 20, count)
        model = LogisticRegression(C=fit._STRENGTH, tol=1e-10, max_iter=100_000)
        model.fit(values, right, sample_weight=mass)
        weights, intercept = fit.logistic(values, right, mass)
        assert weights == pytest.approx(model.coef_[0], abs=1e-4)
        assert intercept == pytest.approx(model.intercept_[0], abs=1e-4)


def test_separable_labels_have_weights_too() -> None:
    values = np.linspace(-1, 1, 50)[:, None] * 1e3
    weights, intercept = fit.logistic(values, values[:, 0] > 0, np.ones(50))
    assert np.isfinite([*weights, intercept]).all()


def test_knots_are_scikit_learns() -> None:
    from sklearn.isotonic import IsotonicRegression

    for seed in range(5):
        random = np.random.default_rng(seed)
        scores = np.round(random.normal(size=800), 2)  # with ties
        right = random.random(800) < 1 / (1 + np.exp(-scores))
        mass = random.uniform(0.5, 20, 800)
        model = IsotonicRegression(y_min=1e-3, y_max=1 - 1e-3, out_of_bounds="clip")
        model.fit(scores, right, sample_weight=mass)
        xs, ys = fit.isotonic(scores, right, mass)
        at = np.linspace(-4, 4, 500)
        assert np.interp(at, xs, ys) == pytest.approx(model.predict(at), abs=1e-9)
        assert len(xs) == len(model.X_thresholds_)


@pytest.mark.parametrize("groups", [None, 40])
def test_folds_have_as_many_right_ones_and_all_answers_once(groups: int | None) -> None:
    found = answers(403, groups=groups)
    told = [part for _, part in fit.folds(found, seed=1)]
    assert sorted(np.concatenate(told).tolist()) == list(range(403))
    rights = [int(found.right[part].sum()) for part in told]
    assert max(rights) - min(rights) <= (1 if groups is None else 12)
    assert max(map(len, told)) - min(map(len, told)) <= (2 if groups is None else 12)
    assert not np.array_equal(told[0], fit.folds(found, seed=2)[0][1])


def test_a_cancel_is_heard_amid_a_fit() -> None:
    found = answers(1500)

    def longest() -> float:
        looks: list[float] = []
        fit.fit(found, NAMES, lambda: looks.append(time.process_time()))
        fit.validated(found, NAMES, lambda: looks.append(time.process_time()))
        return float(np.diff(looks).max())

    # A busy machine adds processor time too: threads of the linear algebra wait by spinning.
    assert any(longest() < 0.2 for _ in range(5))
