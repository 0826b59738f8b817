"""Nearest neighbors and logistic regression over unit vectors, with numpy alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_FOLDS = 5
_NEIGHBORS = (1, 3, 5, 9, 15)
_PENALTIES = (1e-2, 1e-3, 1e-4)
"""Weights of half the squared coefficients beside the mean log-loss."""
_ITERATIONS = 150
_COMPARED_MOST = 2000
"""Rows of the cross-validation. More take long, and change accuracy by less than a point."""

Matrix = Any
Predict = Callable[[Matrix], Matrix]
Check = Callable[[], None]


class Choice(NamedTuple):
    """The method that is right more often in cross-validation, and how often both were right."""

    method: str
    strength: float
    """Number of neighbors, or the penalty of the regression."""
    accuracy_neighbors: float
    accuracy_logistic: float

    @property
    def accuracy(self) -> float:
        """Accuracy of the chosen method."""
        return max(self.accuracy_neighbors, self.accuracy_logistic)


def chosen(matrix: Matrix, places: Matrix, labels: int, check: Check) -> Choice:
    """Compare both methods by 5-fold cross-validation, stratified by label, and choose one. A tie goes to neighbors."""
    at, folds = _folds(np.asarray(places))
    matrix, places = matrix[at], np.asarray(places)[at]
    best: dict[str, tuple[float, float]] = {}
    for method, strengths in (("neighbors", _NEIGHBORS), ("logistic", _PENALTIES)):
        for strength in strengths:
            right = 0
            for fold in range(_FOLDS):
                held = folds == fold
                predict = fitted(method, strength, matrix[~held], places[~held], labels, check)
                right += int((predict(matrix[held]).argmax(1) == places[held]).sum())
            accuracy = right / len(places)
            if method not in best or accuracy > best[method][0]:
                best[method] = (accuracy, float(strength))
    neighbors, logistic = best["neighbors"][0], best["logistic"][0]
    method = "logistic" if logistic > neighbors else "neighbors"
    return Choice(method, best[method][1], neighbors, logistic)


def fitted(
    method: str, strength: float, matrix: Matrix, places: Matrix, labels: int, check: Check
) -> Predict:
    """Fit a method to labeled rows, and return a function from rows to probabilities."""
    one_hot = np.eye(labels, dtype=np.float32)[np.asarray(places)]
    if method == "neighbors":
        return _neighbors(matrix, one_hot, int(strength))
    return _logistic(matrix, one_hot, strength, check)


def _neighbors(matrix: Matrix, one_hot: Matrix, number: int) -> Predict:
    number = min(number, len(matrix))

    def predict(rows: Matrix) -> Matrix:
        similarity = rows @ matrix.T
        near = np.argpartition(-similarity, number - 1, axis=1)[:, :number]
        weights = np.maximum(np.take_along_axis(similarity, near, 1), 0.01)
        votes = (one_hot[near] * weights[:, :, None]).sum(1)
        # One more vote is spread over all labels, so that no probability is 0 or 1.
        return (votes + 1 / votes.shape[1]) / (votes.sum(1, keepdims=True) + 1)

    return predict


def _logistic(matrix: Matrix, one_hot: Matrix, penalty: float, check: Check) -> Predict:
    """Minimize the penalized mean log-loss by Nesterov's accelerated gradient descent with a fixed step."""
    mean = matrix.mean(0)
    rows = _extended(matrix - mean)
    largest = float(np.linalg.norm(rows, 2) ** 2) / len(rows)
    step = 1 / (largest / 2 + penalty)
    weights = ahead = np.zeros((rows.shape[1], one_hot.shape[1]), np.float32)
    for iteration in range(_ITERATIONS):
        check()
        slope = rows.T @ (_softmax(rows @ ahead) - one_hot) / len(rows) + penalty * ahead
        before, weights = weights, ahead - step * slope
        ahead = weights + iteration / (iteration + 3) * (weights - before)
    return lambda new: _softmax(_extended(new - mean) @ weights)


def _extended(rows: Matrix) -> Matrix:
    return np.hstack([rows, np.full((len(rows), 1), 0.3, np.float32)]).astype(np.float32)


def _softmax(scores: Matrix) -> Matrix:
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _folds(places: Matrix) -> tuple[Matrix, Matrix]:
    """Return the rows to compare and the fold of each. Rows of a label are spread evenly over the folds."""
    shuffled = np.random.default_rng(0).permutation(len(places))[:_COMPARED_MOST]
    by_label = shuffled[np.argsort(places[shuffled], kind="stable")]
    return by_label, np.arange(len(by_label)) % _FOLDS
