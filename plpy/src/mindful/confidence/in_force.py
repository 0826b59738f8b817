"""The thresholds of one kind of answers: what is in force, and the rows that change it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mindful.confidence.lineage import TYPES
from mindful.confidence.promise import Promise
from mindful.confidence.trial import Trial, Used
from mindful.core.ports import Database

KEY_TYPES = (*TYPES, "boolean", "integer")
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


class Thresholds:
    """The thresholds of the answers that share a calibrator."""

    def __init__(self, db: Database, key: Sequence[Any]) -> None:
        """Key are the columns of `calibrator` that name a kind of answers."""
        self._db, self._key = db, key

    def last(self, used: Used, promise: Promise, after: Sequence[int]) -> Mapping[str, Any]:
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
            (*KEY_TYPES, "bigint", "double precision", "text", "double precision", "bigint[]"),
            (*self._key, used.id, promise.budget, promise.kind, promise.delta, list(after)),
        )

    def tighten(self, threshold_id: int, newest: int) -> None:
        """Flag all answers from now on, as newer labels speak against a threshold."""
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

    def repeat(self, used: Used, threshold_id: int | None) -> None:
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

    def add(self, used: Used, test: Trial) -> int | None:
        """Insert the result of a test, if there was one, and return its id."""
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
        } | test.certified._asdict()
        del row["tested"]
        return insert(self._db, "threshold", row)


def insert(db: Database, table: str, row: Mapping[str, Any]) -> int:
    """Insert a row into a table of the schema mindful, and return its id."""
    columns = ", ".join(row)
    new: int = db.one(
        f"""insert into mindful.{table} ({columns})
            select {columns} from pg_catalog.jsonb_populate_record(null::mindful.{table}, $1) returning id""",
        ("jsonb",),
        (json.dumps(row),),
    )["id"]
    return new
