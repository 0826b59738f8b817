"""Promises about errors are kept, and what cannot be promised is said."""

import numpy as np
import pytest
from mindful.threshold import Certified, certify, control, fewest, kept, levels, spent, upper_bound
from scipy.special import betaincinv
from scipy.stats import binom


@pytest.mark.parametrize(
    ("budget", "delta", "least"),
    [(0.05, 0.1, 45), (0.1, 0.1, 22), (0.2, 0.1, 11), (0.3, 0.1, 7), (0.1, 0.05, 29)],
)
def test_fewest_labels_without_error(budget: float, delta: float, least: int) -> None:
    assert fewest(budget, delta) == least
    assert (1 - budget) ** least <= delta < (1 - budget) ** (least - 1)


@pytest.mark.parametrize(
    ("answered", "budget", "most"), [(50, 0.1, 1), (100, 0.2, 14), (200, 0.05, 5), (500, 0.1, 40)]
)
def test_the_bound_is_the_exact_binomial_test(answered: int, budget: float, most: int) -> None:
    for wrong in range(answered + 1):
        passes = upper_bound(wrong, answered, 0.1) <= budget
        assert passes == (binom.cdf(wrong, answered, budget) <= 0.1) == (wrong <= most)


def drawn(random: np.random.Generator, count: int, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    right = random.random(count) < accuracy
    return right, 1 / (1 + np.exp(-1.2 * (right + random.normal(size=count))))


@pytest.mark.parametrize(("accuracy", "budget"), [(0.6, 0.2), (0.3, 0.4)])
def test_certified_thresholds_break_the_budget_as_rarely_as_promised(accuracy: float, budget: float) -> None:
    population, probable = drawn(np.random.default_rng(1), 200_000, accuracy)
    broken = given = naive = 0.0
    for seed in range(300):
        random = np.random.default_rng(seed + 2)
        (fitted, guide), (tested, said) = drawn(random, 500, accuracy), drawn(random, 500, accuracy)
        found = certify(said, tested, levels(guide, fitted, budget, 0.1, 500), budget, 0.1)
        if found.value is not None:
            shown = probable >= found.value
            broken += (~population[shown]).mean() > budget
            given += shown.mean()
        order = np.argsort(-said)
        kept = np.flatnonzero(np.cumsum(~tested[order]) / np.arange(1, 501) <= budget)
        if len(kept):
            naive += (~population[probable >= said[order][kept[-1]]]).mean() > budget
    assert broken / 300 <= 0.1
    assert given > 0
    assert naive / 300 > 0.25  # the rule that takes the lowest threshold whose observed errors fit the budget


def test_labels_of_a_random_share_keep_the_promise_where_taken_for_all_they_break_it() -> None:
    population, probable = drawn(np.random.default_rng(1), 200_000, 0.6)
    broken, above = np.zeros(2), np.quantile(probable, 0.8)
    for seed in range(200):
        random = np.random.default_rng(seed + 2)
        (fitted, guide), (right, said) = drawn(random, 500, 0.6), drawn(random, 4000, 0.6)
        propensity = np.where(said >= above, 1.0, 0.1)  # what was flagged is labelled one time in ten
        labelled = random.random(4000) < propensity
        weights = 1 / propensity[labelled]
        for at, given in enumerate((weights, None)):
            found = certify(
                said[labelled], right[labelled], levels(guide, fitted, 0.2, 0.1, 500), 0.2, 0.1, given
            )
            if found.value is not None:
                broken[at] += (~population[probable >= found.value]).mean() > 0.2
    assert broken[0] / 200 <= 0.1
    assert broken[1] / 200 > 0.5


def test_what_is_labelled_with_one_probability_is_kept_whole() -> None:
    luck = np.random.default_rng(0).random(1000)
    assert kept(np.full(1000, 20.0), luck).all()
    mixed = np.where(np.arange(1000) % 2, 20.0, 1.0)
    chosen = kept(mixed, luck)
    assert chosen[1::2].all()
    assert 10 <= chosen[::2].sum() <= 40  # one in twenty of 500
    assert not kept(np.array([]), np.array([])).size


def test_nothing_is_promised_on_too_few_labels() -> None:
    said, right = np.linspace(0.5, 0.9, 14), np.ones(14, dtype=bool)
    found = certify(said, right, levels(said, right, 0.1, 0.1, 14), 0.1, 0.1)
    assert found == Certified(
        None, None, None, None, "no threshold certifiable: 22 labels without error needed, 14 there"
    )


def test_nothing_is_promised_of_a_bad_model() -> None:
    said, right = np.linspace(0.1, 0.9, 500), np.zeros(500, dtype=bool)
    found = certify(said, right, levels(said, right, 0.1, 0.1, 500), 0.1, 0.1)
    assert found.value is None
    assert "most probable answers are wrong" in found.reason


def test_answers_of_one_probability_are_let_through_together() -> None:
    said = np.array([0.9] * 10 + [0.5] * 90)
    right = np.array([True] * 10 + [True, False] * 45)
    found = control(said, right, 0.1)
    assert (found.value, found.answered, found.wrong) == (0.9, 10, 0)
    assert found.bound == pytest.approx(1 / 101)
    assert control(said, right, 0.5).value == 0.5


def test_the_share_of_questions_answered_wrongly_is_kept_in_the_mean() -> None:
    population, probable = drawn(np.random.default_rng(1), 200_000, 0.6)
    shares = []
    for seed in range(300):
        right, said = drawn(np.random.default_rng(seed + 2), 100, 0.6)
        value = control(said, right, 0.1).value
        shares.append(0.0 if value is None else float((~population & (probable >= value)).mean()))
    assert np.mean(shares) <= 0.1
    assert np.mean(shares) > 0.07


def test_too_few_labels_for_a_budget_over_questions() -> None:
    found = control(np.array([0.9, 0.8]), np.array([True, True]), 0.1)
    assert found.reason == "no threshold certifiable: 9 labels needed, 2 there"


def test_all_tests_together_spend_delta() -> None:
    assert sum(spent(0.1, run) for run in range(1, 100_000)) == pytest.approx(0.1, abs=1e-5)


@pytest.mark.parametrize("answered", [1, 2, 30, 500, 20_000])
def test_the_bound_is_the_quantile_of_a_beta_distribution(answered: int) -> None:
    for wrong in {0, 1, answered // 10, answered // 2, answered - 1}:
        for delta in (0.001, 0.1, 0.5):
            if wrong < answered:
                exact = betaincinv(wrong + 1, answered - wrong, 1 - delta)
                assert upper_bound(wrong, answered, delta) == pytest.approx(exact, rel=1e-6)
