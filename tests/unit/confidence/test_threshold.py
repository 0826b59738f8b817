"""Promises about errors are kept, and what cannot be promised is said."""

import numpy as np
import pytest
from mindful.confidence.threshold import (
    Certified,
    Draws,
    _most,
    _student,
    certify,
    control,
    correlation,
    fewest,
    levels,
    spent,
    upper_bound,
)
from scipy.special import betaincinv
from scipy.stats import binom, t


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


@pytest.mark.parametrize(("answered", "budget"), [(22, 0.1), (50, 0.1), (100, 0.2), (200, 0.05), (500, 0.3)])
def test_the_most_errors_are_those_with_which_the_test_still_passes(answered: int, budget: float) -> None:
    most = _most(answered, budget, 0.1)
    assert isinstance(most, int)
    assert binom.cdf(most, answered, budget) <= 0.1 < binom.cdf(most + 1, answered, budget)
    assert not isinstance(_most(fewest(budget, 0.1) - 1, budget, 0.1), int)


@pytest.fixture
def thresholds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the bound of the error above a threshold: it takes half of the time, and decides nothing."""
    monkeypatch.setattr(Draws, "bound", lambda draws, delta: 1.0)


def singly(right: np.ndarray, weights: np.ndarray | None = None) -> Draws:
    return Draws(right, np.ones(len(right)) if weights is None else weights, np.arange(len(right)))


def drawn(random: np.random.Generator, count: int, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    right = random.random(count) < accuracy
    return right, 1 / (1 + np.exp(-1.2 * (right + random.normal(size=count))))


@pytest.mark.parametrize(("accuracy", "budget"), [(0.6, 0.2), (0.3, 0.4)])
@pytest.mark.slow
@pytest.mark.usefixtures("thresholds_alone")
def test_certified_thresholds_break_the_budget_as_rarely_as_promised(accuracy: float, budget: float) -> None:
    population, probable = drawn(np.random.default_rng(1), 200_000, accuracy)
    broken = given = naive = 0.0
    for seed in range(300):
        random = np.random.default_rng(seed + 2)
        (fitted, guide), (tested, said) = drawn(random, 500, accuracy), drawn(random, 500, accuracy)
        found = certify(said, singly(tested), levels(guide, fitted, budget, 0.1, 500), budget, 0.1)
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


@pytest.mark.slow
@pytest.mark.usefixtures("thresholds_alone")
def test_labels_of_a_random_share_keep_the_promise_where_taken_for_all_they_break_it() -> None:
    population, probable = drawn(np.random.default_rng(1), 200_000, 0.6)
    broken, above = np.zeros(2), np.quantile(probable, 0.8)
    for seed in range(100):
        random = np.random.default_rng(seed + 2)
        (fitted, guide), (right, said) = drawn(random, 500, 0.6), drawn(random, 4000, 0.6)
        propensity = np.where(said >= above, 1.0, 0.1)  # what was flagged is labeled one time in ten
        labeled = random.random(4000) < propensity
        weights = 1 / propensity[labeled]
        for at, given in enumerate((weights, None)):
            grid = levels(guide, fitted, 0.2, 0.1, 500)
            found = certify(said[labeled], singly(right[labeled], given), grid, 0.2, 0.1)
            if found.value is not None:
                broken[at] += (~population[probable >= found.value]).mean() > 0.2
    assert broken[0] / 100 <= 0.1
    assert broken[1] / 100 > 0.5


def in_sessions(
    random: np.random.Generator, sessions: int, each: int, topic: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw answers of sessions that are easy or hard as a whole."""
    units = np.repeat(np.arange(sessions), each)
    ease = 0.4 * np.sqrt(1 + topic**2 / 3) + topic * random.normal(size=sessions)[units]
    right = random.random(len(units)) < 1 / (1 + np.exp(-ease))
    return right, 1 / (1 + np.exp(-1.2 * (right + random.normal(size=len(units))))), units


@pytest.mark.parametrize(("sessions", "each", "topic"), [(30, 10, 2.0), (15, 20, 2.0), (30, 10, 0.0)])
@pytest.mark.usefixtures("thresholds_alone")
def test_labels_that_come_in_sessions_keep_the_promise(sessions: int, each: int, topic: float) -> None:
    population, probable, _ = in_sessions(np.random.default_rng(1), 20_000, 10, topic)
    broken = certified = 0
    for seed in range(100):
        random = np.random.default_rng(seed + 2)
        fitted, guide, units = in_sessions(random, sessions, each, topic)
        right, said, tested = in_sessions(random, sessions, each, topic)
        draws = Draws(right, np.ones(len(right)), tested, correlation(fitted, units))
        found = certify(said, draws, levels(guide, fitted, 0.3, 0.1, draws.effective()), 0.3, 0.1)
        if found.value is not None:
            certified += 1
            broken += (~population[probable >= found.value]).mean() > 0.3
    assert broken <= 10
    assert certified > 10  # nor does it refuse everything


def test_a_session_counts_for_less_the_more_its_errors_are_alike() -> None:
    units = np.repeat(np.arange(20), 10)
    same = np.repeat(np.arange(20) % 2 == 0, 10)
    mixed = np.arange(200) % 2 == 0
    assert correlation(same, units) == pytest.approx(1)
    assert correlation(mixed, units) == 0
    assert correlation(np.repeat([True, False] * 50, 2), np.repeat(np.arange(100), 2)) == pytest.approx(1)
    assert Draws(same, np.ones(200), units, 1.0).effective() <= 20
    assert Draws(mixed, np.ones(200), units, 0.0).effective() > 180
    assert correlation(same, np.zeros(200)) == 1.0  # of one session nothing is known
    assert Draws(same, np.ones(200), np.zeros(200), 1.0).effective() == 1


def test_nothing_is_promised_on_too_few_labels() -> None:
    said, right = np.linspace(0.5, 0.9, 14), np.ones(14, dtype=bool)
    found = certify(said, singly(right), levels(said, right, 0.1, 0.1, 14), 0.1, 0.1)
    assert found == Certified(
        None,
        None,
        None,
        None,
        "no threshold can be certified: the test needs 22 labels without an error and has 14",
        8,
        tested=False,
    )


def test_nothing_is_promised_of_a_bad_model() -> None:
    said, right = np.linspace(0.1, 0.9, 500), np.zeros(500, dtype=bool)
    found = certify(said, singly(right), levels(said, right, 0.1, 0.1, 500), 0.1, 0.1)
    assert (found.value, found.more_labels) == (None, None)
    assert "most probable answers are wrong" in found.reason


def test_a_budget_that_needs_more_labels_says_about_how_many() -> None:
    said, right = np.linspace(1, 0.5, 100), np.arange(100) % 10 != 9  # one in ten is wrong
    found = certify(said, singly(right), [said[49]], 0.2, 0.01)
    assert found.value is None
    assert found.more_labels is not None
    answered = (100 + found.more_labels) // 2
    assert binom.cdf(round(answered * 0.11), answered, 0.2) < 0.03


@pytest.mark.parametrize(
    ("answered", "wrong"), [(50, 5), (50, 30), (90, 9), (28, 4), (22, 1), (21, 1), (3, 1)]
)
def test_a_refusal_says_how_many_errors_the_test_allows(answered: int, wrong: int) -> None:
    said, right = np.array([0.9] * answered + [0.1] * (100 - answered)), np.ones(100, dtype=bool)
    right[:wrong] = False
    found = certify(said, singly(right), [0.9], 0.1, 0.1)
    allowed = max((most for most in range(answered) if binom.cdf(most, answered, 0.1) <= 0.1), default=None)
    says = "cannot pass" if allowed is None else f"allows {allowed}"
    assert found.reason == (
        f"no threshold can be certified: {wrong} of the {answered} most probable answers are wrong, and the test {says}"
    )


def test_answers_of_one_probability_are_let_through_together() -> None:
    said = np.array([0.9] * 10 + [0.5] * 90)
    right = np.array([True] * 10 + [True, False] * 45)
    found = control(said, right, 0.1)
    assert (found.value, found.answered, found.wrong) == (0.9, 10, 0)
    assert found.bound == pytest.approx(1 / 101)
    assert control(said, right, 0.5).value == 0.5


@pytest.mark.slow
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
    assert found.reason == "no threshold can be certified: the test needs 9 labels and has 2"


def in_two_tiers(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    right = random.random(count) < 0.5
    first = 1.2 * right + random.normal(size=count)
    return right, first, 0.6 * right + 0.9 * first + 0.5 * random.normal(size=count)


@pytest.mark.usefixtures("thresholds_alone")
def test_a_threshold_after_a_flag_keeps_its_budget_only_if_tested_on_flagged_answers() -> None:
    population, first, second = in_two_tiers(np.random.default_rng(0), 100_000)
    broken = {True: 0, False: 0}
    for seed in range(200):
        random = np.random.default_rng(seed + 1)
        (fitted, guide, guide_after), (right, said, said_after) = (
            in_two_tiers(random, 200) for _ in range(2)
        )
        before = certify(said, singly(right), levels(guide, fitted, 0.3, 0.1, 200), 0.3, 0.1).value
        if before is None:
            continue
        for flagged in broken:
            part, known = (said < before, guide < before) if flagged else (said < np.inf, guide < np.inf)
            grid = levels(guide_after[known], fitted[known], 0.3, 0.1, part.sum())
            value = certify(said_after[part], singly(right[part]), grid, 0.3, 0.1).value
            shown = (first < before) & (second >= (np.inf if value is None else value))
            broken[flagged] += bool(shown.any() and (~population[shown]).mean() > 0.3)
    assert broken[True] <= 20
    assert broken[False] > 40


def test_all_tests_together_spend_delta() -> None:
    assert sum(spent(0.1, run) for run in range(1, 100_000)) == pytest.approx(0.1, abs=1e-5)


@pytest.mark.parametrize("answered", [1, 2, 30, 500, 20_000])
def test_the_bound_is_the_quantile_of_a_beta_distribution(answered: int) -> None:
    for wrong in {0, 1, answered // 10, answered // 2, answered - 1}:
        for delta in (0.001, 0.1, 0.5):
            if wrong < answered:
                exact = betaincinv(wrong + 1, answered - wrong, 1 - delta)
                assert upper_bound(wrong, answered, delta) == pytest.approx(exact, rel=1e-6)


def test_the_quantile_of_students_t() -> None:
    assert _student(20) == pytest.approx(t.ppf(0.9, 20), abs=5e-5)
    assert _student(1000) == pytest.approx(t.ppf(0.9, 1000), abs=2e-9)


@pytest.mark.parametrize("answered", [1, 10, 45, 46, 100, 333])
def test_the_most_errors_are_those_that_the_exact_test_allows(answered: int) -> None:
    passing = [wrong for wrong in range(answered) if binom.cdf(wrong, answered, 0.1) <= 0.05]
    assert _most(answered, 0.1, 0.05) == max(passing, default=None)


def test_each_threshold_adds_a_hundredth_of_the_answers() -> None:
    said = np.linspace(0.999, 0, 1000)
    right = said > 0.5
    grid = levels(said, right, 0.2, 0.1, 1000)
    added = np.diff([(said >= level).sum() for level in grid])
    assert set(added) == {10}
