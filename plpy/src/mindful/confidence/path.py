"""The thresholds that an answer meets before another one: those of lower tiers, and of earlier attempts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mindful.confidence.calibrator import Calibrator
from mindful.confidence.lineage import TYPES
from mindful.core.jsontext import loads
from mindful.core.ports import Database

FITTED = ("features", "means", "scales", "weights", "intercept", "knots_x", "knots_y")
FIND = "_mindful.calibrator_find($1, $2, $3, $4, $5, $6, $7)"
FIND_TYPES = (*TYPES, "boolean", "integer", "double precision", "bigint[]")
Stage = tuple[Any, ...]


def before(
    db: Database, key: Stage, rows: Sequence[Mapping[str, Any]], budget: float
) -> tuple[list[int], list[Mapping[str, Any]]]:
    """Return the ids of the thresholds that answers of a kind meet before, and the labels of those that they flag.

    If labels took different paths, the path that most of them took counts.
    """
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    reached = [(_flagged(db, found, _stages(key, row), budget), row) for row in rows]
    paths = Counter(tuple(path) for path, _ in reached if path is not None)
    usual = max(paths, key=lambda path: (paths[path], path), default=())
    return list(usual), [row for path, row in reached if path is not None and tuple(path) == usual]


def _stages(key: Stage, row: Mapping[str, Any]) -> list[tuple[Stage, str]]:
    """Return the kinds of answers, with their signals, that were judged before this one."""
    model, ways, second_model, with_memory, tier = key
    stages: list[tuple[Stage, str]] = []
    for one in loads(row["attempts"]):
        stage = (model, one["ways"], one["second_model"], one["with_memory"])
        signals = json.dumps(one["signals"])
        stages.append(((*stage, 0), signals))
        # A second recall comes before the signals of higher tiers are gathered.
        if one["signal_tier"] and one["next_way"] != "retrieve":
            stages.append(((*stage, one["signal_tier"]), signals))
    if tier:
        stages.append(((model, ways, second_model, with_memory, 0), row["signals"]))
    return stages


def _flagged(
    db: Database,
    found: dict[tuple[Any, ...], Mapping[str, Any]],
    stages: Sequence[tuple[Stage, str]],
    budget: float,
) -> list[int] | None:
    """Return the ids of the thresholds that flagged an answer, or None if one of them let it pass."""
    path: list[int] = []
    for stage, signals in stages:
        at = (json.dumps([stage, path]),)
        if at not in found:
            rows = db.rows(f"select * from {FIND}", FIND_TYPES, (*stage, budget, path))
            found[at] = rows[0] if rows else {"threshold": None}
        row = found[at]
        if row["threshold"] is None:
            continue
        calibrator = Calibrator(**{name: row[name] for name in FITTED})
        if calibrator.probability(loads(signals)) >= row["threshold"]:
            return None
        path = [*path, row["threshold_id"]]
    return path
