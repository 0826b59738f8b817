"""The test of a budget on labels: which labels it uses, when it is repeated, and what holds afterwards."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mindful.confidence.calibrator import Calibrator
from mindful.confidence.path import FITTED
from mindful.confidence.promise import Promise
from mindful.core.jsontext import loads

if TYPE_CHECKING:
    from mindful.confidence.fit import Labeled
    from mindful.confidence.metric import Check
    from mindful.confidence.threshold import Certified

_GROWTH = 1.5
"""Growth of a test's labels before it is repeated. A repetition spends a part of delta."""


@dataclass
class Used:
    """A calibrator with its row's further columns. It has no id until it is stored."""

    calibrator: Calibrator
    unit: str
    metrics: Mapping[str, Any]
    last_outcome: int
    id: int | None = None
    shipped: bool = False


def used_of(row: Mapping[str, Any]) -> Used:
    """Read a row of the table `calibrator`."""
    fitted = Calibrator(**{name: row[name] for name in FITTED})
    metrics, shipped = loads(row["metrics"]), row["origin"] == "shipped"
    return Used(fitted, row["unit"], metrics, row["last_outcome"], row["id"], shipped)


@dataclass
class Trial:
    """A budget's labels, the threshold in force before, and the result of a test, if there was one."""

    promise: Promise
    after: Sequence[int]
    rows: Sequence[Mapping[str, Any]]
    last: Mapping[str, Any]
    run: int = 0
    certified: Certified | None = None
    """The result of the test, or None if there was none."""

    @property
    def stands(self) -> bool:
        """Whether a threshold is in force from an earlier call."""
        return bool(self.last["status"] == "certified")

    @property
    def needed(self) -> int:
        """The number of labels that the next test needs: half as many more if the last one spent a part of delta."""
        if self.last["tested"]:
            return math.ceil(_GROWTH * int(self.last["tested"]))
        return 0 if self.last["id"] is None else int(self.last["labels"]) + 1

    @property
    def passed(self) -> bool:
        """Whether this test certified a threshold."""
        return self.certified is not None and self.certified.value is not None

    @property
    def spent(self) -> float:
        """The part of delta that the test spends. A test that cannot pass whatever the labels say spends none."""
        from mindful.confidence import threshold

        if self.certified is None or not self.certified.tested:
            return 0.0
        return threshold.spent(self.promise.delta, self.run)

    @property
    def news(self) -> bool:
        """Whether the test changes what holds: a first result, or a threshold below the one in force."""
        if self.certified is None or not self.stands:
            return self.certified is not None
        value = self.certified.value
        return value is not None and value < self.last["value"]

    @property
    def status(self) -> str:
        """The status of a new row, or of the row in force."""
        if not self.news:
            return str(self.last["status"])
        return "certified" if self.passed else "infeasible"

    @property
    def holds(self) -> Mapping[str, Any]:
        """The columns of the threshold that holds after the test."""
        return self.certified._asdict() if self.certified is not None and self.news else self.last

    @property
    def more_labels(self) -> int | None:
        """The estimate of the further labels of the test until a threshold passes."""
        if self.status == "certified":
            return 0
        if self.certified is not None:
            return self.certified.more_labels
        missing = self.last["more_labels"]
        if missing is None:
            return None
        return max(self.needed - len(self.rows), int(missing + self.last["labels"]) - len(self.rows), 1)


def parts(
    rows: Sequence[Mapping[str, Any]], unit: str
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Split labels into those of the fit and those of the test. The hash of a unit decides permanently."""
    fitted: list[Mapping[str, Any]] = []
    tested: list[Mapping[str, Any]] = []
    for row in rows:
        digest = hashlib.md5(unit_of(row, unit).encode(), usedforsecurity=False).hexdigest()
        (fitted if digest[0] in "01234567" else tested).append(row)
    return fitted, tested


def split(
    rows: Sequence[Mapping[str, Any]], used: Used
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Split labels for a calibrator. A shipped ranking was fitted to none of them, so all are for the test."""
    return ([], list(rows)) if used.shipped else parts(rows, used.unit)


def unit_of(row: Mapping[str, Any], unit: str) -> str:
    """Return the name of what is drawn independently: a source or session, or a gold question."""
    alone: str | None = row["question"] if unit == "question" else None
    return alone or str(row["source"])


def coverage(calibrator: Calibrator, rows: Sequence[Mapping[str, Any]], value: float | None) -> float:
    """Return the share of the tested answers that reach a threshold, weighted by 1 / propensity."""
    if value is None or not rows:
        return 0.0
    mass = [1 / row["propensity"] for row in rows]
    reached = [calibrator.probability(loads(row["signals"])) >= value for row in rows]
    return float(sum(one for one, passed in zip(mass, reached, strict=True) if passed) / sum(mass))


def certified(
    calibrator: Calibrator, fitted: Labeled, tested: Labeled, test: Trial, check: Check
) -> Certified:
    """Test thresholds on the labels of a test. The fitted labels decide the order of the tests."""
    from mindful.confidence import fit, threshold

    promise, said = test.promise, fit.probabilities(calibrator, tested)
    if promise.kind == "questions":
        return threshold.control(said, tested.right, promise.budget, tested.weights, tested.groups)
    others = fitted if len(fitted) else tested
    alike = threshold.correlation(others.right, others.groups)
    draws = threshold.Draws(tested.right, tested.weights, tested.groups, alike)
    delta = threshold.spent(promise.delta, test.run)
    independent = draws.effective()
    if len(fitted):
        guide = fit.out_of_fold(fitted, calibrator.features, check=check)
        grid = threshold.levels(guide, fitted.right, promise.budget, delta, independent, fitted.weights)
    else:
        # No label was fitted to. The probabilities tell the order of the tests; they know the labels' base rate only.
        grid = threshold.levels(said, said, promise.budget, delta, independent, tested.weights)
    return threshold.certify(said, draws, grid, promise.budget, delta, check)
