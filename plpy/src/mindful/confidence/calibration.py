"""Fitting calibrators to labels, and certifying thresholds that keep an error budget."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mindful.confidence.in_force import KEY_TYPES, Thresholds, insert
from mindful.confidence.lineage import Lineage
from mindful.confidence.path import before
from mindful.confidence.promise import Promise, ladder, promise_of
from mindful.confidence.ranking import find
from mindful.confidence.signal import features
from mindful.confidence.trial import Trial, Used, certified, coverage, parts, split, unit_of, used_of
from mindful.core.entry import writing_function
from mindful.core.errors import NotReadyError
from mindful.core.ports import Database
from mindful.models import runtime

if TYPE_CHECKING:
    from mindful.confidence.fit import Labeled

_FEWEST_NEW = 20
"""Minimum of labels newer than the calibrator in force before another one may replace it."""
_FEWEST_SOURCES = 20
"""Minimum of sources of gold questions that are split as a whole. Fewer leave no sources for the test."""
_FEWEST_OWN = 100
"""With fewer labels, a shipped ranking is certified on all of them instead of a fit to one half."""
_KEY = ("model", "ways", "second_model", "with_memory", "signal_tier")


@writing_function
def calibrate(
    db: Database, model: str | None, error_budget: float | None, delta: float | None, budget_kind: str | None
) -> list[dict[str, Any]]:
    """Fit a model's calibrators to its labels, and certify thresholds."""
    promise = promise_of(error_budget, delta, budget_kind)
    name = runtime.find(db, "generator", model).name
    rows = db.rows("select ways, second_model from _mindful.lineage_list($1)", ("text",), (name,))
    cells = [
        _Cell(db, Lineage.of(name, row), with_memory, tier)
        for row in rows
        for with_memory in (False, True)
        for tier in range(4)
    ]
    cells = [cell for cell in cells if cell.labels]
    if not cells:
        raise NotReadyError(
            f'the answers of "{name}" have no labels',
            "Label answers with answer_label, or evaluate gold questions with gold_evaluate.",
        )
    results = [cell.calibrated(ladder(promise)) for cell in cells]
    if all(row["calibrator_id"] is None for row in results):
        raise NotReadyError(
            f'"{name}" cannot be calibrated: {results[0]["reason"]}',
            "Add labels of right and of wrong answers with answer_label or gold_evaluate.",
        )
    return results


class _Cell:
    """The labeled answers of one lineage, with or without memories, at one tier: they share a calibrator."""

    def __init__(self, db: Database, lineage: Lineage, with_memory: bool, tier: int) -> None:
        self._db = db
        self._key = (*lineage.values, with_memory, tier)
        self._rows = db.rows("select * from _mindful.labeled($1, $2, $3, $4, $5)", KEY_TYPES, self._key)
        if tier and not any(row["signal_tier"] >= tier for row in self._rows):
            self._rows = []
        sources = {row["source"] for row in self._rows if row["question"] is not None}
        self._ranking = find(db, lineage, with_memory, tier) if self._rows else None
        self._thresholds = Thresholds(db, self._key)
        self._unit = "source" if len(sources) >= _FEWEST_SOURCES else "question"

    @property
    def labels(self) -> int:
        """The number of labeled answers."""
        return len(self._rows)

    def calibrated(self, promises: Sequence[Promise]) -> dict[str, Any]:
        """Fit, compare, certify and store. Return a row of `calibration_detail` for the last promise."""
        detail = dict(zip(_KEY, self._key, strict=True)) | {
            "labels": self.labels,
            "wrong": sum(not row["correct"] for row in self._rows),
        }
        if obstacle := self._obstacle():
            return detail | dict.fromkeys(_RESULTS) | {"status": "uncalibrated", "reason": obstacle}
        used, tests = self._adopted(promises)
        found = [self._stored(used, test, asked=test.promise is promises[-1]) for test in tests]
        metrics = {"calibrator_id": used.id, "metrics": json.dumps(used.metrics)}
        steps = [{name: step[name] for name in _STEPS} for step in found]
        ladder = sorted(steps, key=lambda step: step["budget"])
        asked = found[-1] | {"reason": found[-1]["reason"] + _kept_instead(found[-1], ladder)}
        return detail | metrics | asked | {"ladder": json.dumps(ladder)}

    def _obstacle(self) -> str | None:
        from mindful.confidence.fit import FEWEST

        if self._ranking is not None and self.labels < _FEWEST_OWN:
            return None
        if self.labels < FEWEST:
            return f"{FEWEST} labels are needed, there are {self.labels}"
        fitted, tested = parts(self._rows, self._unit)
        for part, name in ((self._rows, "labels"), (fitted, "labels of the fit")):
            right = sum(row["correct"] for row in part)
            if right in (0, len(part)) and part:
                return f"all {len(part)} {name} are {'right' if right else 'wrong'}"
        if not fitted or not tested:
            return "the labels are from one session; label answers of others, or evaluate gold questions"
        return None

    def _adopted(self, promises: Sequence[Promise]) -> tuple[Used, list[Trial]]:
        """Return the calibrator in force from now on, and the tests of its thresholds.

        A new one takes over if it has the lower log-loss on labels that the current one has not seen, and certifies
        each budget that the current one has certified.
        """
        rows = self._db.rows(
            """select id, unit, origin, metrics, last_outcome, adopted,
                   features, means, scales, weights, intercept, knots_x, knots_y
               from mindful.calibrator
               where tenant = (select _mindful.tenant()) and model = $1 and ways = $2
                   and second_model is not distinct from $3 and with_memory = $4 and signal_tier = $5
               order by id desc""",
            KEY_TYPES,
            self._key,
        )
        current = next((used_of(row) for row in rows if row["adopted"]), None)
        newest = max(row["outcome_id"] for row in self._rows)
        if current is not None and (rows[0]["last_outcome"] >= newest or not self._enough_new(current)):
            return current, self._tests(current, promises)
        new = self._shipped() if current is None else None
        if new is None:
            new = self._fitted()
        stands = [] if current is None else [self._test(current, one).stands for one in promises]
        tests = self._tests(new, promises)
        kept = all(now.passed for now, was in zip(tests, stands, strict=False) if was)
        gained = not any(stands) and any(now.passed for now in tests)
        if current is None or (kept and (gained or self._better(new, current))):
            new.id = self._store(new, current, adopted=True)
            return new, tests
        new.id = self._store(new, current, adopted=False)
        for test in tests:
            self._thresholds.add(new, test)
        return current, self._tests(current, promises)

    def _enough_new(self, current: Used) -> bool:
        if current.shipped and self.labels < _FEWEST_OWN:
            return False
        fitted = parts(self._rows, self._unit)[0]
        return bool(sum(row["outcome_id"] > current.last_outcome for row in fitted) >= _FEWEST_NEW)

    def _fitted(self) -> Used:
        from mindful.confidence import fit

        _, _, second_model, with_memory, tier = self._key
        names = features(tier, with_memory, chained=second_model is not None)
        fitted = self._labeled(parts(self._rows, self._unit)[0])
        calibrator = fit.fit(fitted, names, self._db.check)
        metrics = fit.validated(self._labeled(self._rows), names, check=self._db.check)
        newest = max(row["outcome_id"] for row in self._rows)
        return Used(calibrator, self._unit, metrics, newest)

    def _shipped(self) -> Used | None:
        """Return the shipped ranking with the base rate of the labels, or None. It is not fitted to their signals."""
        from mindful.confidence import fit

        if self._ranking is None:
            return None
        answers = self._labeled(self._rows)
        share = float(answers.weights @ answers.right / answers.weights.sum())
        calibrator = self._ranking.updated(self.labels, share * self.labels)
        metrics = fit.figures(answers, fit.probabilities(calibrator, answers), self._db.check)
        newest = max(row["outcome_id"] for row in self._rows)
        return Used(calibrator, self._unit, metrics, newest, shipped=True)

    def _better(self, new: Used, current: Used) -> bool:
        from mindful.confidence import fit

        rows = parts(self._rows, self._unit)[0]
        answers = self._labeled(rows)
        unseen = [current.shipped or row["outcome_id"] > current.last_outcome for row in rows]
        predicted = fit.out_of_fold(answers, new.calibrator.features, check=self._db.check)
        return fit.better(predicted, current.calibrator, answers, unseen)

    def _labeled(self, rows: Sequence[Mapping[str, Any]], unit: str | None = None) -> Labeled:
        from mindful.confidence import fit

        return fit.of_rows([dict(row) | {"source": unit_of(row, unit or self._unit)} for row in rows])

    def _store(self, used: Used, current: Used | None, adopted: bool) -> int:
        fitted = split(self._rows, used)[0]
        labels, wrong = len(fitted), sum(not one["correct"] for one in fitted)
        if used.shipped and self._ranking is not None:
            labels, wrong = self._ranking.labels, self._ranking.labels - self._ranking.right
        row: dict[str, Any] = dict(zip(_KEY, self._key, strict=True)) | used.calibrator._asdict()
        row |= {
            "unit": used.unit,
            "origin": "shipped" if used.shipped else "labels",
            "labels": labels,
            "wrong": wrong,
            "metrics": used.metrics,
            "last_outcome": used.last_outcome,
            "supersedes": None if current is None else current.id,
            "adopted": adopted,
        }
        return insert(self._db, "calibrator", row)

    def _tests(self, used: Used, promises: Sequence[Promise]) -> list[Trial]:
        """Test the thresholds of each budget, unless the last test had about as many labels."""
        return [self._run(used, self._test(used, promise)) for promise in promises]

    def _test(self, used: Used, promise: Promise) -> Trial:
        """Return the labels that the answers will be like, those that no threshold before let pass, and what holds."""
        after, reached = before(self._db, self._key, split(self._rows, used)[1], promise.budget)
        last = self._thresholds.last(used, promise, after)
        rows = [row for row in reached if last["alarm"] is None or row["outcome_id"] > last["alarm"]]
        test = Trial(promise, after, rows, last)
        if test.stands and self._refuted(used, test):
            self._thresholds.tighten(last["id"], max(row["outcome_id"] for row in self._rows))
            return self._test(used, promise)
        return test

    def _refuted(self, used: Used, test: Trial) -> bool:
        """Return whether labels newer than a threshold speak against it, half as many as those it was tested on."""
        from mindful.confidence import fit, threshold

        new = [row for row in test.rows if row["outcome_id"] > (test.last["last_outcome"] or 0)]
        if 2 * len(new) < (test.last["labels"] or 0) or not new:
            return False
        answers = self._labeled(new, used.unit)
        given = fit.probabilities(used.calibrator, answers) >= test.last["value"]
        if test.promise.kind == "answers":
            answers, given = answers.at(given), given[given]
        draws = threshold.Draws(answers.right | ~given, answers.weights, answers.groups, 1.0)
        return draws.refutes(test.promise.budget, threshold.spent(test.promise.delta, test.last["runs"] + 1))

    def _run(self, used: Used, test: Trial) -> Trial:
        if len(test.rows) < test.needed:
            return test
        fitted = self._labeled(split(self._rows, used)[0], used.unit)
        test.run = test.last["runs"] + 1
        test.certified = certified(
            used.calibrator, fitted, self._labeled(test.rows, used.unit), test, self._db.check
        )
        return test

    def _stored(self, used: Used, test: Trial, asked: bool) -> dict[str, Any]:
        """Put a passed threshold in force, and return what holds now. A test that fails changes nothing in force."""
        threshold_id = self._thresholds.add(used, test) if test.news else test.last["id"]
        if asked and not test.news:
            self._thresholds.repeat(used, threshold_id)
        holds = test.holds
        return {
            "threshold_id": threshold_id,
            "budget": test.promise.budget,
            "status": test.status,
            "threshold": holds["value"],
            "bound": holds["bound"],
            "reason": holds["reason"],
            "coverage": coverage(used.calibrator, test.rows, holds["value"]),
            "delta_spent": test.spent,
            "more_labels": test.more_labels,
        }


def _kept_instead(asked: Mapping[str, Any], ladder: Sequence[Mapping[str, Any]]) -> str:
    """Name the least budget that has a threshold, if the one asked for has none."""
    budgets = [step["budget"] for step in ladder if step["threshold"] is not None]
    if asked["threshold"] is not None or not budgets:
        return ""
    return f"; {budgets[0]:g} is kept: SELECT setting_set('error_budget', {budgets[0]:g})"


_RESULTS = (
    "calibrator_id",
    "threshold_id",
    "budget",
    "threshold",
    "bound",
    "coverage",
    "metrics",
    "delta_spent",
    "more_labels",
    "ladder",
)
_STEPS = ("budget", "status", "threshold", "bound", "coverage", "more_labels")
