"""Fitting calibrators to labels, and certifying thresholds that keep an error budget."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from mindful.confidence.calibrator import Calibrator
from mindful.confidence.lineage import TYPES, Lineage
from mindful.confidence.path import FITTED, before
from mindful.confidence.ranking import find
from mindful.confidence.signal import features
from mindful.core.entry import writing_function
from mindful.core.errors import InvalidParameterError, NotReadyError, NullValueError
from mindful.core.ports import Database
from mindful.models import runtime

if TYPE_CHECKING:
    from mindful.confidence.fit import Labelled
    from mindful.confidence.metric import Check
    from mindful.confidence.threshold import Certified

_KINDS = ("answers", "questions")
_FEWEST_NEW = 20
"""Minimum of labels newer than the calibrator in force before another one may replace it."""
_LADDER = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Budgets that each call certifies beside the one asked for."""
_GROWTH = 1.5
"""Growth of a test's labels before it is repeated. A repetition spends a part of delta."""
_FEWEST_SOURCES = 20
"""Minimum of sources of gold questions that are split as a whole. Fewer leave no sources for the test."""
_FEWEST_OWN = 100
"""With fewer labels, a shipped ranking is certified on all of them instead of a fit to one half."""
_KEY = ("model", "ways", "second_model", "with_memory", "signal_tier")
_KEY_TYPES = (*TYPES, "boolean", "integer")


@writing_function
def calibrate(
    db: Database, model: str | None, error_budget: float | None, delta: float | None, budget_kind: str | None
) -> list[dict[str, Any]]:
    """Fit a model's calibrators to its labels, and certify thresholds."""
    promise = _promise(error_budget, delta, budget_kind)
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
    results = [cell.calibrated(_ladder(promise)) for cell in cells]
    if all(row["calibrator_id"] is None for row in results):
        raise NotReadyError(
            f'"{name}" cannot be calibrated: {results[0]["reason"]}',
            "Add labels of right and of wrong answers with answer_label or gold_evaluate.",
        )
    return results


@dataclass(frozen=True)
class Promise:
    """An upper bound on the share of wrong answers, among those given or all questions, with probability 1 - delta."""

    budget: float
    delta: float
    kind: str


def _ladder(promise: Promise) -> list[Promise]:
    """Return the promises to test. The one asked for comes last, so that its budget is the newest."""
    return [replace(promise, budget=one) for one in _LADDER if one != promise.budget] + [promise]


def _promise(budget: float | None, delta: float | None, kind: str | None) -> Promise:
    if budget is None or delta is None or kind is None:
        raise NullValueError(
            "error_budget, delta and budget_kind must not be null", "Leave them out for the defaults."
        )
    for name, value in (("error_budget", budget), ("delta", delta)):
        if not 0 < value < 1:
            raise InvalidParameterError(f"{name} is {value}", f"Pass {name} between 0 and 1, both excluded.")
    if kind not in _KINDS:
        raise InvalidParameterError(
            f'budget_kind is "{kind}"',
            "Pass answers to limit the wrong share of answers given, or questions to limit that of all questions.",
        )
    return Promise(budget, delta, kind)


class _Cell:
    """The labeled answers of one lineage, with or without memories, at one tier: they share a calibrator."""

    def __init__(self, db: Database, lineage: Lineage, with_memory: bool, tier: int) -> None:
        self._db = db
        self._key = (*lineage.values, with_memory, tier)
        self._rows = db.rows("select * from _mindful.labelled($1, $2, $3, $4, $5)", _KEY_TYPES, self._key)
        if tier and not any(row["signal_tier"] >= tier for row in self._rows):
            self._rows = []
        sources = {row["source"] for row in self._rows if row["question"] is not None}
        self._ranking = find(db, lineage, with_memory, tier) if self._rows else None
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
        return detail | metrics | found[-1] | {"ladder": json.dumps(ladder)}

    def _obstacle(self) -> str | None:
        from mindful.confidence.fit import FEWEST

        if self._ranking is not None and self.labels < _FEWEST_OWN:
            return None
        if self.labels < FEWEST:
            return f"{FEWEST} labels are needed, there are {self.labels}"
        fitted, tested = _parts(self._rows, self._unit)
        for part, name in ((self._rows, "labels"), (fitted, "labels of the fit")):
            right = sum(row["correct"] for row in part)
            if right in (0, len(part)) and part:
                return f"all {len(part)} {name} are {'right' if right else 'wrong'}"
        if not fitted or not tested:
            return "the labels are from one session; label answers of others, or evaluate gold questions"
        return None

    def _adopted(self, promises: Sequence[Promise]) -> tuple[_Used, list[_Test]]:
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
            _KEY_TYPES,
            self._key,
        )
        current = next((_used(row) for row in rows if row["adopted"]), None)
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
            self._insert(new, test)
        return current, self._tests(current, promises)

    def _enough_new(self, current: _Used) -> bool:
        if current.shipped and self.labels < _FEWEST_OWN:
            return False
        if self._obstacle():
            return False
        fitted = _parts(self._rows, self._unit)[0]
        return bool(sum(row["outcome_id"] > current.last_outcome for row in fitted) >= _FEWEST_NEW)

    def _fitted(self) -> _Used:
        from mindful.confidence import fit

        _, _, second_model, with_memory, tier = self._key
        names = features(tier, with_memory, chained=second_model is not None)
        fitted = self._labelled(_parts(self._rows, self._unit)[0])
        calibrator = fit.fit(fitted, names, self._db.check)
        metrics = fit.validated(self._labelled(self._rows), names, check=self._db.check)
        newest = max(row["outcome_id"] for row in self._rows)
        return _Used(calibrator, self._unit, metrics, newest)

    def _shipped(self) -> _Used | None:
        """Return the shipped ranking with the base rate of the labels, or None. It is not fitted to their signals."""
        from mindful.confidence import fit

        if self._ranking is None:
            return None
        right = sum(row["correct"] for row in self._rows)
        calibrator = self._ranking.updated(self.labels, right)
        answers = self._labelled(self._rows)
        metrics = fit.figures(answers, fit.probabilities(calibrator, answers), self._db.check)
        newest = max(row["outcome_id"] for row in self._rows)
        return _Used(calibrator, self._unit, metrics, newest, shipped=True)

    def _better(self, new: _Used, current: _Used) -> bool:
        from mindful.confidence import fit

        rows = _parts(self._rows, self._unit)[0]
        answers = self._labelled(rows)
        unseen = [current.shipped or row["outcome_id"] > current.last_outcome for row in rows]
        predicted = fit.out_of_fold(answers, new.calibrator.features, check=self._db.check)
        return fit.better(predicted, current.calibrator, answers, unseen)

    def _labelled(self, rows: Sequence[Mapping[str, Any]], unit: str | None = None) -> Labelled:
        from mindful.confidence import fit

        return fit.of_rows([dict(row) | {"source": _unit(row, unit or self._unit)} for row in rows])

    def _store(self, used: _Used, current: _Used | None, adopted: bool) -> int:
        fitted = _split(self._rows, used)[0]
        labels, wrong = len(fitted), sum(not one["correct"] for one in fitted)
        if used.shipped and self._ranking is not None:
            labels, wrong = self._ranking.labels, self._ranking.labels - self._ranking.right
        row = dict(zip(_KEY, self._key, strict=True)) | asdict(used.calibrator)
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
        return _insert(self._db, "calibrator", row)

    def _tests(self, used: _Used, promises: Sequence[Promise]) -> list[_Test]:
        """Test the thresholds of each budget, unless the last test had about as many labels."""
        return [self._run(used, self._test(used, promise)) for promise in promises]

    def _test(self, used: _Used, promise: Promise) -> _Test:
        """Return the labels that the answers will be like, those that no threshold before let pass, and what holds."""
        after, reached = before(self._db, self._key, _split(self._rows, used)[1], promise.budget)
        last = self._last(used, promise, after)
        rows = [row for row in reached if last["alarm"] is None or row["outcome_id"] > last["alarm"]]
        test = _Test(promise, after, rows, last)
        if test.stands and self._refuted(used, test):
            self._tighten(last["id"], max(row["outcome_id"] for row in self._rows))
            return self._test(used, promise)
        return test

    def _refuted(self, used: _Used, test: _Test) -> bool:
        """Return whether labels newer than a threshold speak against it, half as many as those it was tested on."""
        from mindful.confidence import fit, threshold

        new = [row for row in test.rows if row["outcome_id"] > (test.last["last_outcome"] or 0)]
        if 2 * len(new) < (test.last["labels"] or 0) or not new:
            return False
        answers = self._labelled(new, used.unit)
        given = fit.probabilities(used.calibrator, answers) >= test.last["value"]
        if test.promise.kind == "answers":
            answers, given = answers.at(given), given[given]
        draws = threshold.Draws(answers.right | ~given, answers.weights, answers.groups, 1.0)
        return draws.refutes(test.promise.budget, threshold.spent(test.promise.delta, test.last["runs"] + 1))

    def _tighten(self, threshold_id: int, newest: int) -> None:
        self._db.rows(
            """insert into mindful.threshold
                   (calibrator_id, budget_kind, budget, delta, run, delta_spent, status, labels, reason,
                    after, last_outcome, supersedes)
               select t.calibrator_id, t.budget_kind, t.budget, t.delta, t.run, 0, 'tightened', 0,
                   'labels that came after the test show more errors than the budget allows', t.after, $2, t.id
               from mindful.threshold t where t.tenant = (select _mindful.tenant()) and t.id = $1""",
            ("bigint", "bigint"),
            (threshold_id, newest),
        )

    def _run(self, used: _Used, test: _Test) -> _Test:
        if len(test.rows) < test.needed:
            return test
        fitted = self._labelled(_split(self._rows, used)[0], used.unit)
        test.run = test.last["runs"] + 1
        test.certified = _certified(
            used.calibrator, fitted, self._labelled(test.rows, used.unit), test, self._db.check
        )
        return test

    def _last(self, used: _Used, promise: Promise, after: Sequence[int]) -> Mapping[str, Any]:
        """Return the threshold in force, the last alarm, and the number of tests that have spent a part of delta."""
        return self._db.one(
            """select coalesce(t.repeats, t.id) as id, t.status, t.value, t.bound, t.labels, t.reason, t.more_labels,
                   t.last_outcome, r.runs, r.alarm, (
                       select pg_catalog.max(n.labels) from mindful.threshold n
                       where n.tenant = (select _mindful.tenant()) and n.calibrator_id = $6 and n.budget = $7
                           and n.budget_kind = $8 and n.delta = $9 and n.after = $10 and n.delta_spent > 0
                           and n.last_outcome > coalesce(r.alarm, -1)
                   ) as tested
               from (
                   select pg_catalog.count(distinct n.run) filter (where n.delta_spent > 0) as runs,
                       pg_catalog.max(n.last_outcome)
                           filter (where n.status = 'tightened' and n.calibrator_id = $6) as alarm
                   from mindful.threshold n
                   join mindful.calibrator c on c.tenant = n.tenant and c.id = n.calibrator_id
                   where n.tenant = (select _mindful.tenant()) and c.model = $1 and c.ways = $2
                       and c.second_model is not distinct from $3 and c.with_memory = $4 and c.signal_tier = $5
                       and n.budget = $7 and n.budget_kind = $8 and n.delta = $9
               ) r
               left join lateral (
                   select n.* from mindful.threshold n
                   where n.tenant = (select _mindful.tenant()) and n.calibrator_id = $6
                       and n.budget = $7 and n.budget_kind = $8 and n.delta = $9
                       and (n.after is null or n.after = $10)
                   order by n.status = 'infeasible', n.id desc
                   limit 1
               ) t on true""",
            (*_KEY_TYPES, "bigint", "double precision", "text", "double precision", "bigint[]"),
            (*self._key, used.id, promise.budget, promise.kind, promise.delta, list(after)),
        )

    def _stored(self, used: _Used, test: _Test, asked: bool) -> dict[str, Any]:
        """Put a passed threshold in force, and return what holds now. A test that fails changes nothing in force."""
        threshold_id = self._insert(used, test) if test.news else test.last["id"]
        if asked and not test.news:
            self._repeat(used, threshold_id)
        holds = test.holds
        return {
            "threshold_id": threshold_id,
            "budget": test.promise.budget,
            "status": test.status,
            "threshold": holds["value"],
            "bound": holds["bound"],
            "reason": holds["reason"],
            "coverage": _coverage(used.calibrator, test.rows, holds["value"]),
            "delta_spent": test.spent,
            "more_labels": test.more_labels,
        }

    def _repeat(self, used: _Used, threshold_id: int | None) -> None:
        """Add a row that repeats a threshold, as the setting error_budget 0 selects the budget of the newest row."""
        columns = ", ".join(_REPEATED)
        self._db.rows(
            f"""insert into mindful.threshold ({columns}, delta_spent, supersedes, repeats)
                select {columns}, 0, t.id, t.id from mindful.threshold t
                where t.tenant = (select _mindful.tenant()) and t.id = $2 and t.id <> (
                    select coalesce(n.repeats, n.id) from mindful.threshold n
                    where n.tenant = t.tenant and n.calibrator_id = $1 and n.status <> 'tightened'
                    order by n.id desc limit 1
                )""",
            ("bigint", "bigint"),
            (used.id, threshold_id),
        )

    def _insert(self, used: _Used, test: _Test) -> int | None:
        if test.certified is None:
            return None
        row = {
            "calibrator_id": used.id,
            "budget_kind": test.promise.kind,
            "budget": test.promise.budget,
            "delta": test.promise.delta,
            "run": test.run,
            "delta_spent": test.spent,
            "status": test.status,
            "labels": len(test.rows),
            "after": list(test.after),
            "last_outcome": max((one["outcome_id"] for one in test.rows), default=0),
            "supersedes": test.last["id"],
        } | asdict(test.certified)
        del row["tested"]
        return _insert(self._db, "threshold", row)


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
_REPEATED = (
    "calibrator_id",
    "budget_kind",
    "budget",
    "delta",
    "run",
    "value",
    "status",
    "labels",
    "answered",
    "wrong",
    "bound",
    "reason",
    "more_labels",
    "after",
    "last_outcome",
)


@dataclass
class _Used:
    """A calibrator with its row's further columns. It has no id until it is stored."""

    calibrator: Calibrator
    unit: str
    metrics: Mapping[str, Any]
    last_outcome: int
    id: int | None = None
    shipped: bool = False


def _used(row: Mapping[str, Any]) -> _Used:
    fitted = Calibrator(**{name: row[name] for name in FITTED})
    metrics, shipped = json.loads(row["metrics"]), row["origin"] == "shipped"
    return _Used(fitted, row["unit"], metrics, row["last_outcome"], row["id"], shipped)


@dataclass
class _Test:
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
        return asdict(self.certified) if self.certified is not None and self.news else self.last

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


def _parts(
    rows: Sequence[Mapping[str, Any]], unit: str
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Split labels into those of the fit and those of the test. The hash of a unit decides permanently."""
    fitted: list[Mapping[str, Any]] = []
    tested: list[Mapping[str, Any]] = []
    for row in rows:
        digest = hashlib.md5(_unit(row, unit).encode(), usedforsecurity=False).hexdigest()
        (fitted if digest[0] in "01234567" else tested).append(row)
    return fitted, tested


def _split(
    rows: Sequence[Mapping[str, Any]], used: _Used
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Split labels for a calibrator. A shipped ranking was fitted to none of them, so all are for the test."""
    return ([], list(rows)) if used.shipped else _parts(rows, used.unit)


def _unit(row: Mapping[str, Any], unit: str) -> str:
    """Return the name of what is drawn independently: a source or session, or a gold question."""
    alone: str | None = row["question"] if unit == "question" else None
    return alone or str(row["source"])


def _coverage(calibrator: Calibrator, rows: Sequence[Mapping[str, Any]], value: float | None) -> float:
    """Return the share of the tested answers that reach a threshold, weighted by 1 / propensity."""
    if value is None or not rows:
        return 0.0
    mass = [1 / row["propensity"] for row in rows]
    reached = [calibrator.probability(json.loads(row["signals"])) >= value for row in rows]
    return float(sum(one for one, passed in zip(mass, reached, strict=True) if passed) / sum(mass))


def _certified(
    calibrator: Calibrator, fitted: Labelled, tested: Labelled, test: _Test, check: Check
) -> Certified:
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


def _insert(db: Database, table: str, row: Mapping[str, Any]) -> int:
    columns = ", ".join(row)
    new: int = db.one(
        f"""insert into mindful.{table} ({columns})
            select {columns} from pg_catalog.jsonb_populate_record(null::mindful.{table}, $1) returning id""",
        ("jsonb",),
        (json.dumps(row),),
    )["id"]
    return new
