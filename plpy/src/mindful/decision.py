"""What is done with an answer: its signals become a probability, that meets a threshold, and a row says why."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mindful.calibrator import Calibrator, prior
from mindful.call import Call
from mindful.lesson import is_repeated, learned
from mindful.ports import Database
from mindful.prompt import Context
from mindful.signal import Signals, free, grounding, recalled, rounded

_FITTED = ("features", "means", "scales", "weights", "intercept", "knots_x", "knots_y")


@dataclass
class Decision:
    """A row of the table `decision`, before it has its id."""

    model: str
    with_memory: bool
    signals: Signals
    tier: int = 0
    signal_ms: dict[str, float] = field(default_factory=dict)
    probability: float = 0.5
    calibrator_id: int | None = None
    threshold_id: int | None = None
    threshold: float | None = None
    action: str = "flag"
    reason: str = ""
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    offered: bool = False
    propensity: float = 1.0
    total_ms: float = 0.0
    parent_id: int | None = None
    message_id: int | None = None
    instead_id: int | None = None
    gold_id: int | None = None
    generation_id: int | None = None
    answer: str | None = None


def decide_answer(
    db: Database,
    call: Call,
    context: Context,
    answer: str,
    model: str | None = None,
    budget: float = 0,
    known: Mapping[str, float] | None = None,
) -> Decision:
    """Decide about an answer by what is known of it for free, and what is known already."""
    started = time.perf_counter()
    signals = free(call.signals, context.question, answer) | dict(known or {})
    if context.notes:
        signals |= grounding(answer, context.question, context.notes)
    if context.memory_ids:
        covered = db.one(
            "select * from mindful._recall_coverage($1, $2)",
            ("text", "bigint[]"),
            (context.question, context.memory_ids),
        )
        signals |= recalled(
            [row["score"] for row in context.considered],
            [row["similarity"] for row in context.considered],
            [row["bm25"] for row in context.considered],
            covered,
        )
    signals |= learned(context.lessons, answer)
    decision = decide(db, model or call.spec.name, bool(context.notes), signals, budget=budget)
    decision.generation_id = call.generation_id
    decision.signal_ms["free"] = round(call.signal_ms + (time.perf_counter() - started) * 1000, 3)
    return decision


def decide(
    db: Database,
    model: str,
    with_memory: bool,
    signals: Mapping[str, float],
    tier: int = 0,
    budget: float = 0,
) -> Decision:
    """Hold an answer's probability of being right to the threshold in force for a budget; 0 is the newest."""
    decision = Decision(model, with_memory, rounded(signals), tier)
    rows = db.rows(
        "select * from mindful._calibrator_find($1, $2, $3, $4)",
        ("text", "boolean", "integer", "double precision"),
        (model, with_memory, tier, budget),
    )
    if not rows:
        labels = db.one(
            "select labels, correct from mindful._label_count($1, $2)",
            ("text", "boolean"),
            (model, with_memory),
        )
        decision.probability = prior(labels["correct"], labels["labels"])
        decision.reason = f"not calibrated: {labels['labels']} labels of such answers, see calibrate()"
        return decision
    row = rows[0]
    decision.probability = Calibrator(**{name: row[name] for name in _FITTED}).probability(decision.signals)
    decision.calibrator_id, decision.threshold_id = row["id"], row["threshold_id"]
    decision.threshold = row["threshold"]
    if row["threshold_id"] is None:
        decision.reason = f"no error budget{f' of {budget}' if budget else ''} was given to calibrate()"
    elif row["threshold"] is None:
        decision.reason = row["reason"]
    elif decision.probability >= row["threshold"]:
        decision.action, decision.reason = "answer", "the probability reaches the threshold"
    else:
        decision.reason = "the probability is below the threshold"
    if decision.action == "answer" and is_repeated(decision.signals):
        decision.action = "flag"
        decision.reason = "a label says that this is the wrong answer to a like question"
    return decision


_COLUMNS = tuple(one.name for one in fields(Decision))


def record(db: Database, decisions: Sequence[Decision]) -> list[int]:
    """Add decisions to the table, and return their ids in order."""
    columns = ", ".join(_COLUMNS)
    return [
        row["id"]
        for row in db.rows(
            f"""insert into mindful.decision ({columns})
                select {columns} from pg_catalog.jsonb_populate_recordset(null::mindful.decision, $1) returning id""",
            ("jsonb",),
            (json.dumps([asdict(decision) for decision in decisions]),),
        )
    ]
