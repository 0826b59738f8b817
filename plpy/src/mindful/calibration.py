"""Learning from labels how far answers can be trusted, and from which probability on a budget of errors is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mindful import runtime
from mindful.calibrator import Calibrator
from mindful.entry import writing_function
from mindful.errors import InvalidParameterError, NotReadyError, NullValueError
from mindful.evidence import is_chain
from mindful.ports import Database
from mindful.signal import features

if TYPE_CHECKING:
    from mindful.fit import Labelled
    from mindful.metric import Check
    from mindful.threshold import Certified

_KINDS = ("answers", "questions")
_FEWEST_NEW = 20
"""Labels that a calibrator in force has not seen, below which none is put in its place."""
_FITTED = ("features", "means", "scales", "weights", "intercept", "knots_x", "knots_y")


@writing_function
def calibrate(
    db: Database, model: str | None, error_budget: float | None, delta: float | None, budget_kind: str | None
) -> list[dict[str, Any]]:
    """Fit a model's calibrators to its labels, and certify thresholds."""
    promise = _promise(error_budget, delta, budget_kind)
    name = runtime.find(db, "generator", model).name
    ways = db.rows("select model from mindful._labelled_ways($1)", ("text",), (name,))
    cells = [
        _Cell(db, row["model"], with_memory, tier)
        for row in ways
        for with_memory in (False, True)
        for tier in range(4)
    ]
    cells = [cell for cell in cells if cell.labels]
    if not cells:
        raise NotReadyError(
            f'the answers of "{name}" have no labels',
            "Give some with review_label, or have questions with known answers graded by calibration_import.",
        )
    found = [cell.calibrated(promise) for cell in cells]
    if all(row["calibrator_id"] is None for row in found):
        raise NotReadyError(
            f'"{name}" cannot be calibrated: {found[0]["reason"]}',
            "Give more labels, of right and of wrong answers, with review_label or calibration_import.",
        )
    return found


@dataclass(frozen=True)
class Promise:
    """At most this share wrong, of the answers given or of all questions, with probability 1 - delta."""

    budget: float
    delta: float
    kind: str


def _promise(budget: float | None, delta: float | None, kind: str | None) -> Promise:
    if budget is None or delta is None or kind is None:
        raise NullValueError(
            "error_budget, delta and budget_kind must not be null", "Leave out what you need not set."
        )
    for name, value in (("error_budget", budget), ("delta", delta)):
        if not 0 < value < 1:
            raise InvalidParameterError(f"{name} is {value}", "It must be more than 0 and less than 1.")
    if kind not in _KINDS:
        raise InvalidParameterError(
            f'budget_kind is "{kind}"',
            "answers limits the share of wrong ones among the answers given, questions that among all questions.",
        )
    return Promise(budget, delta, kind)


class _Cell:
    """The labelled answers that one calibrator is for."""

    def __init__(self, db: Database, model: str, with_memory: bool, tier: int) -> None:
        self._db = db
        self._key = (model, with_memory, tier)
        self._rows = db.rows(
            "select * from mindful._labelled($1, $2, $3)", ("text", "boolean", "integer"), self._key
        )
        if tier and not any(row["tier"] >= tier for row in self._rows):
            self._rows = []

    @property
    def labels(self) -> int:
        """How many there are."""
        return len(self._rows)

    def calibrated(self, promise: Promise) -> dict[str, Any]:
        """Fit, compare, certify, and store; a row of `calibration_detail`."""
        detail = dict(zip(("model", "with_memory", "tier"), self._key, strict=True)) | {
            "labels": self.labels,
            "wrong": sum(not row["correct"] for row in self._rows),
        }
        if obstacle := self._obstacle():
            return detail | dict.fromkeys(_RESULTS) | {"status": "uncalibrated", "reason": obstacle}
        calibrator_id, calibrator, metrics = self._calibrator()
        threshold = self._threshold(calibrator_id, calibrator, promise)
        return (
            detail
            | {"calibrator_id": calibrator_id}
            | threshold
            | {"coverage": self._coverage(calibrator, threshold["threshold"]), "metrics": json.dumps(metrics)}
        )

    def _obstacle(self) -> str | None:
        from mindful.fit import FEWEST

        if self.labels < FEWEST:
            return f"{FEWEST} labels are needed, {self.labels} are there"
        for part, what in ((self._rows, "labels"), (self._part(True), "labels to fit to")):
            right = sum(row["correct"] for row in part)
            if right in (0, len(part)):
                return f"all {len(part)} {what} say {'right' if right else 'wrong'}"
        if not self._part(False):
            return "no labels are left to test on: all are of one source"
        return None

    def _part(self, fitting: bool) -> list[Mapping[str, Any]]:
        """Take the labels to fit to, or those to test on: an answer belongs to one of the two for ever."""
        return [row for row in self._rows if row["fitting"] == fitting]

    def _calibrator(self) -> tuple[int, Calibrator, dict[str, Any]]:
        """Return the calibrator to use: a new one, or the one in force where a new one is no better."""
        from mindful import fit

        model, with_memory, tier = self._key
        answers = _labelled(self._part(True))
        names = features(tier, with_memory, chained=is_chain(model))
        held = self._db.rows(
            """select id, metrics, last_outcome, features, means, scales, weights, intercept, knots_x, knots_y
               from mindful.calibrator
               where tenant = (select mindful._tenant()) and model = $1 and with_memory = $2 and tier = $3 and adopted
               order by id desc limit 1""",
            ("text", "boolean", "integer"),
            self._key,
        )
        if held:
            old = Calibrator(**{name: held[0][name] for name in _FITTED})
            unseen = [row["outcome_id"] > held[0]["last_outcome"] for row in self._part(True)]
            if sum(unseen) < _FEWEST_NEW:
                return held[0]["id"], old, json.loads(held[0]["metrics"])
        check = self._db.check
        new = fit.fit(answers, names, check)
        metrics = fit.validated(_labelled(self._rows), names, check=check)
        adopted = not held or fit.better(fit.out_of_fold(answers, names, check=check), old, answers, unseen)
        new_id = self._store(new, metrics, held[0]["id"] if held else None, adopted)
        if adopted:
            return new_id, new, metrics
        return held[0]["id"], old, json.loads(held[0]["metrics"])

    def _store(
        self, calibrator: Calibrator, metrics: Mapping[str, Any], supersedes: int | None, adopted: bool
    ) -> int:
        part = self._part(True)
        row = dict(zip(("model", "with_memory", "tier"), self._key, strict=True)) | asdict(calibrator)
        row |= {
            "labels": len(part),
            "wrong": sum(not one["correct"] for one in part),
            "metrics": metrics,
            "last_outcome": max(one["outcome_id"] for one in self._rows),
            "supersedes": supersedes,
            "adopted": adopted,
        }
        return _insert(self._db, "calibrator", row)

    def _threshold(self, calibrator_id: int, calibrator: Calibrator, promise: Promise) -> dict[str, Any]:
        """Certify a threshold on labels that had no part in the fit, and put it in force."""
        from mindful import threshold

        last = self._db.one(
            """select pg_catalog.count(*) as runs, pg_catalog.max(t.id) filter (where t.calibrator_id = $4) as id
               from mindful.threshold t
               join mindful.calibrator c on c.tenant = t.tenant and c.id = t.calibrator_id
               where t.tenant = (select mindful._tenant()) and c.model = $1 and c.with_memory = $2 and c.tier = $3
                   and t.status <> 'tightened'""",
            ("text", "boolean", "integer", "bigint"),
            (*self._key, calibrator_id),
        )
        run = last["runs"] + 1
        delta = threshold.spent(promise.delta, run)
        tested = _labelled(self._part(False))
        found = _certified(calibrator, _labelled(self._part(True)), tested, promise, delta, self._db.check)
        row = {
            "calibrator_id": calibrator_id,
            "budget_kind": promise.kind,
            "budget": promise.budget,
            "delta": promise.delta,
            "run": run,
            "delta_spent": delta,
            "status": "infeasible" if found.value is None else "certified",
            "labels": len(tested),
            "supersedes": last["id"],
        } | asdict(found)
        threshold_id = _insert(self._db, "threshold", row)
        return {
            "threshold_id": threshold_id,
            "status": row["status"],
            "threshold": found.value,
            "bound": found.bound,
            "reason": found.reason,
        }

    def _coverage(self, calibrator: Calibrator, value: float | None) -> float:
        """Share of the labelled answers that a threshold lets through."""
        if value is None:
            return 0.0
        signals = _labelled(self._rows).signals
        return sum(calibrator.probability(one) >= value for one in signals) / len(signals)


_RESULTS = ("calibrator_id", "threshold_id", "threshold", "bound", "coverage", "metrics")


def _certified(
    calibrator: Calibrator, fitted: Labelled, tested: Labelled, promise: Promise, delta: float, check: Check
) -> Certified:
    from mindful import fit, threshold

    said = fit.probabilities(calibrator, tested)
    if promise.kind == "questions":
        return threshold.control(said, tested.right, promise.budget, tested.weights)
    guide = fit.out_of_fold(fitted, calibrator.features, check=check)
    grid = threshold.levels(guide, fitted.right, promise.budget, delta, len(tested))
    return threshold.certify(said, tested.right, grid, promise.budget, delta, tested.weights, check)


def _labelled(rows: Sequence[Mapping[str, Any]]) -> Labelled:
    from mindful import fit

    return fit.labelled(
        [json.loads(row["signals"]) for row in rows],
        [row["correct"] for row in rows],
        [1 / row["propensity"] for row in rows],
        [row["source"] for row in rows],
    )


def _insert(db: Database, table: str, row: Mapping[str, Any]) -> int:
    columns = ", ".join(row)
    new: int = db.one(
        f"""insert into mindful.{table} ({columns})
            select {columns} from pg_catalog.jsonb_populate_record(null::mindful.{table}, $1) returning id""",
        ("jsonb",),
        (json.dumps(row),),
    )["id"]
    return new
