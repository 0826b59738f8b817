"""Classifiers from labeled texts' embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mindful.generate.fit import Choice, _folds, chosen, fitted
from sklearn.linear_model import LogisticRegression


def units(rows: Any) -> Any:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def ready() -> None:
    """No cancel is pending."""


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def test_neighbors_vote_by_their_similarity() -> None:
    matrix = units(np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]]))
    predict = fitted("neighbors", 3, matrix, [0, 1, 1, 0], 2, ready)
    [[first, second]] = predict(units(np.array([[0.8, 0.6]])))
    # The three nearest are 0.8, 0.96 and 0.6 away; one more vote is shared by both labels.
    assert first == pytest.approx((0.8 + 0.5) / (0.8 + 0.96 + 0.6 + 1), abs=1e-6)
    assert second == pytest.approx((0.96 + 0.6 + 0.5) / (0.8 + 0.96 + 0.6 + 1), abs=1e-6)


def test_more_neighbors_than_rows_are_all_rows() -> None:
    matrix = units(np.array([[1.0, 0.0], [0.0, 1.0]]))
    [[first, second]] = fitted("neighbors", 15, matrix, [0, 1], 2, ready)(matrix[:1])
    assert first == pytest.approx((1 + 0.5) / (1.01 + 1), abs=1e-6)
    assert second == pytest.approx((0.01 + 0.5) / (1.01 + 1), abs=1e-6)


@pytest.mark.parametrize("penalty", [1e-2, 1e-3])
def test_the_regression_is_scikit_learns(random: np.random.Generator, penalty: float) -> None:
    places = random.integers(0, 3, 120)
    matrix = units(random.normal(size=(120, 8)) + 1.5 * np.eye(8)[places])
    found = fitted("logistic", penalty, matrix, places, 3, ready)(matrix)
    rows = np.hstack([matrix - matrix.mean(0), np.full((120, 1), 0.3)])
    reference = LogisticRegression(C=1 / (penalty * 120), fit_intercept=False, tol=1e-8, max_iter=5000)
    assert found == pytest.approx(reference.fit(rows, places).predict_proba(rows), abs=0.01)
    assert found.sum(1) == pytest.approx(np.ones(120), abs=1e-5)


def test_a_cancel_is_looked_for_in_every_step_of_the_regression(random: np.random.Generator) -> None:
    looks = []
    fitted("logistic", 0.01, units(random.normal(size=(6, 2))), [0, 1] * 3, 2, lambda: looks.append(1))
    assert len(looks) == 150


def test_labels_that_lie_in_several_places_are_for_neighbors(random: np.random.Generator) -> None:
    corners = np.array([[1, 0, 0, 0], [-1, 0, 0, 0], [0, 1, 0, 0], [0, -1, 0, 0]])
    kinds = np.arange(200) % 4
    matrix = units(corners[kinds] + 0.1 * random.normal(size=(200, 4)))
    choice = chosen(matrix, kinds // 2, 2, ready)
    assert (choice.method, choice.accuracy_neighbors, choice.accuracy) == ("neighbors", 1.0, 1.0)
    assert choice.accuracy_logistic < 0.8


def test_labels_that_lie_on_two_sides_of_a_plane_are_for_the_regression(random: np.random.Generator) -> None:
    matrix = units(random.normal(size=(300, 40)))
    choice = chosen(matrix, (matrix[:, 0] > 0).astype(int), 2, ready)
    assert choice.method == "logistic"
    assert choice.accuracy == choice.accuracy_logistic > choice.accuracy_neighbors + 0.1
    assert choice.strength in (1e-2, 1e-3, 1e-4)


def test_rows_are_judged_by_what_was_fitted_without_them(random: np.random.Generator) -> None:
    """Labels drawn by lot are right as often as a guess."""
    matrix = units(random.normal(size=(400, 6)))
    choice = chosen(matrix, random.integers(0, 2, 400), 2, ready)
    assert choice.accuracy < 0.6


def test_a_tie_goes_to_neighbors(random: np.random.Generator) -> None:
    places = np.arange(60) % 2
    matrix = units(np.eye(2)[places] + 0.01 * random.normal(size=(60, 2)))
    assert chosen(matrix, places, 2, ready) == Choice("neighbors", 1.0, 1.0, 1.0)


def test_every_fold_has_its_share_of_every_label_and_most_rows_are_2000() -> None:
    places = np.arange(5000) % 4
    at, folds = _folds(places)
    assert len(at) == len(set(at.tolist())) == 2000
    shares = [np.bincount(places[at[folds == fold]], minlength=4) for fold in range(5)]
    assert np.ptp(shares, axis=0).max() <= 1
