"""Rankings that the package ships, so that answers are ordered before the tenant has labels.

`rankings.json` is an array of objects, one for each model file, prompt form and kind of answers:

- `sha256` of the model's file, `name` (for readers), and `form`, see `form`
- `with_memory` and `signal_tier`, as in the table `calibrator`
- `features`, `means`, `scales`, `weights` and `intercept`, as in the table `calibrator`
- `labels` and `right`: the questions of the fit that give its base rate, and how many of the answers were right

Rankings transfer to other questions, base rates do not, and thresholds never. So labels of the tenant move the
intercept, and a threshold is always certified on these labels.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mindful.confidence.calibrator import Calibrator
from mindful.confidence.lineage import Lineage
from mindful.core.jsontext import loads
from mindful.core.ports import Database

_PRIOR = 20
"""Weight of the shipped base rate, in labels of the tenant."""
_FITTED = ("features", "means", "scales", "weights", "intercept")


class Ranking(NamedTuple):
    """A shipped calibrator, with the labels that it was fitted to."""

    calibrator: Calibrator
    labels: int
    right: int

    def updated(self, labels: int, right: float) -> Calibrator:
        """Move the intercept to the mean of a Beta distribution of the base rate, after these labels.

        Only the base rate changes between questions, so the log-odds change by its log-odds (Saerens, Latinne and
        Decaestecker 2002).
        """
        shipped = (self.right + 1) / (self.labels + 2)
        rate = (_PRIOR * shipped + right) / (_PRIOR + labels)
        moved = math.log(rate / (1 - rate)) - math.log(shipped / (1 - shipped))
        return self.calibrator._replace(intercept=self.calibrator.intercept + moved)


def form(options: Mapping[str, Any]) -> str:
    """Return the prompt form of a model: chat, or a hash of the template and layout that its options set."""
    own = {name: options[name] for name in ("template", "layout", "stop") if options.get(name)}
    if not own:
        return "chat"
    return "template " + hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16]


def find(db: Database, lineage: Lineage, with_memory: bool, tier: int) -> Ranking | None:
    """Return the ranking of a model's first answers that the package ships, or model_calibrate fitted, or None."""
    if lineage.ways:
        return None
    rows = db.rows(
        """select m.sha256, m.options, (
               select pg_catalog.jsonb_object_agg(r.form, pg_catalog.to_jsonb(r) order by r.id)
               from mindful.model_ranking r
               where r.model = $2 and r.sha256 = m.sha256 and r.with_memory = $3 and r.signal_tier = $4
           ) as surveyed
           from _mindful.model_find($1, $2) m""",
        ("text", "text", "boolean", "integer"),
        ("generator", lineage.model, with_memory, tier),
    )
    if not rows:
        return None
    own = form(loads(rows[0]["options"]))
    newest = loads(rows[0].get("surveyed") or "{}").get(own)
    return shipped().get((rows[0]["sha256"], own, with_memory, tier)) or (newest and _surveyed(newest))


def _surveyed(row: Mapping[str, Any]) -> Ranking:
    """Return the ranking of a row that model_calibrate fitted."""
    fitted = Calibrator(**{name: row[name] for name in _FITTED})
    return Ranking(fitted, row["labels"], row["labels"] - row["wrong"])


@functools.cache
def shipped() -> Mapping[tuple[str, str, bool, int], Ranking]:
    """Read the rankings of the package."""
    # importlib.resources would import tempfile, shutil and pathlib: 6 ms of a connection's first chat.
    with open(os.path.join(os.path.dirname(__file__), "rankings.json"), encoding="utf-8") as file:
        text = file.read()
    return read(loads(text))


def read(entries: Sequence[Mapping[str, Any]]) -> Mapping[tuple[str, str, bool, int], Ranking]:
    """Return rankings by file, form, with_memory and tier."""
    return {
        (one["sha256"], one["form"], one["with_memory"], one["signal_tier"]): Ranking(
            Calibrator(**{name: one[name] for name in _FITTED}), one["labels"], one["right"]
        )
        for one in entries
    }
