"""Decisions about answers: signals give a probability, which is compared with a threshold."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from mindful.confidence.calibrator import Calibrator, prior
from mindful.confidence.lineage import Lineage
from mindful.confidence.path import FIND, FIND_TYPES, FITTED
from mindful.confidence.ranking import find
from mindful.confidence.signal import Signals, conveyed, free, grounding, recalled, rounded
from mindful.conversation.lesson import is_repeated, learned
from mindful.conversation.prompt import Context
from mindful.core.ports import Database
from mindful.generate.call import Call

UNCALIBRATED = "uncalibrated"
"""The action on answers of a kind that has no calibrator. Their probability is a guess, so no promise is made."""


@dataclass
class Decision:
    """A row of the table `decision` without its id."""

    model: str
    with_memory: bool
    signals: Signals
    signal_tier: int = 0
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
    replaced_by_id: int | None = None
    gold_id: int | None = None
    generation_id: int | None = None
    answer: str | None = None
    ways: Sequence[str] = ()
    second_model: str | None = None
    after: Sequence[int] = ()
    is_ranked = False
    """Whether a calibrator or a ranking gave the probability. Without a type, it is no column."""

    @property
    def unsure(self) -> bool:
        """Whether the answer is below its threshold, or has none."""
        return self.action in ("flag", UNCALIBRATED)

    @property
    def flagged_by(self) -> list[int]:
        """The thresholds that the answers of this reply have not reached so far."""
        missed = self.threshold is not None and self.probability < self.threshold
        return [*self.after, self.threshold_id] if missed and self.threshold_id else [*self.after]

    @property
    def lineage(self) -> Lineage:
        """The model and the ways that led to the answer."""
        return Lineage(self.model, tuple(self.ways), self.second_model)

    @lineage.setter
    def lineage(self, lineage: Lineage) -> None:
        self.model, self.ways, self.second_model = lineage.model, lineage.ways, lineage.second_model


def decide_answer(
    db: Database,
    call: Call,
    context: Context,
    answer: str,
    lineage: Lineage | None = None,
    budget: float = 0,
    known: Mapping[str, float] | None = None,
    after: Sequence[int] = (),
    quoted: bool = False,
) -> Decision:
    """Decide about an answer by the signals of tier 0 and the given ones.

    The tokens of a call tell nothing of a quoted answer, which is a memory's words in place of the model's.
    """
    started = time.perf_counter()
    signals = free({} if quoted else call.signals, context.question, answer) | dict(known or {})
    if context.notes:
        signals["quoted"] = float(quoted)
        signals["bearing"] = 0.0 if context.bearing is None else context.bearing.best
        signals |= grounding(answer, context.question, context.notes)
        signals |= conveyed(answer, context.question, context.notes)
    if context.memory_ids:
        coverage = db.one(
            "select * from _mindful.recall_coverage($1, $2)",
            ("text", "bigint[]"),
            (context.question, context.memory_ids),
        )
        signals |= recalled(
            [row["score"] for row in context.considered],
            [row["similarity"] for row in context.considered],
            [row["bm25"] for row in context.considered],
            coverage,
        )
    signals |= learned(context.lessons, answer)
    lineage = lineage or Lineage(call.spec.name)
    decision = decide(db, lineage, bool(context.notes), signals, budget=budget, after=after)
    decision.generation_id = call.generation_id
    decision.signal_ms["free"] = round(call.signal_ms + (time.perf_counter() - started) * 1000, 3)
    return decision


def decide(
    db: Database,
    lineage: Lineage,
    with_memory: bool,
    signals: Mapping[str, float],
    tier: int = 0,
    budget: float = 0,
    after: Sequence[int] = (),
) -> Decision:
    """Compare the probability that an answer is right with the threshold of a budget. 0 is the newest budget.

    after are the thresholds that flagged it before. Only a threshold tested on such answers applies.
    """
    decision = Decision(lineage.model, with_memory, rounded(signals), tier, after=[*after])
    decision.lineage = lineage
    row = db.one(
        f"""select c.*, l.labels, l.correct
           from (select) one
           left join lateral {FIND} c on true
           left join lateral (
               select l.labels, l.correct from _mindful.label_count($1, $2, $3, $4) l where c.id is null offset 0
           ) l on true""",
        FIND_TYPES,
        (*lineage.values, with_memory, tier, budget, [*after]),
    )
    if row["id"] is None:
        ranking = find(db, lineage, with_memory, tier)
        decision.is_ranked = ranking is not None
        decision.probability = (
            prior(row["correct"], row["labels"])
            if ranking is None
            else ranking.updated(row["labels"], row["correct"]).probability(decision.signals)
        )
        decision.action = UNCALIBRATED
        decision.reason = f"not calibrated: such answers have {row['labels']} labels, see calibrate()"
        return decision
    decision.probability = Calibrator(**{name: row[name] for name in FITTED}).probability(decision.signals)
    decision.is_ranked = True
    decision.calibrator_id, decision.threshold_id = row["id"], row["threshold_id"]
    decision.threshold = row["threshold"]
    if row["threshold_id"] is None:
        decision.reason = (
            f"calibrate() was not called with {f'the error budget {budget}' if budget else 'an error budget'}"
        )
    elif row["threshold"] is None:
        decision.reason = row["reason"]
    elif decision.probability >= row["threshold"]:
        decision.action, decision.reason = "answer", "the probability reaches the threshold"
    else:
        decision.reason = "the probability is below the threshold"
    if decision.action == "answer" and is_repeated(decision.signals):
        decision.action = "flag"
        decision.reason = "a label says that this answer to a similar question is wrong"
    if decision.action == "answer" and decision.signals.get("looped"):
        decision.action, decision.reason = "flag", "the answer repeats itself"
    return decision


_COLUMNS = tuple(one.name for one in fields(Decision))


def record(db: Database, decisions: Sequence[Decision]) -> list[int]:
    """Insert decisions and return their ids in order."""
    columns = ", ".join(_COLUMNS)
    return [
        row["id"]
        for row in db.rows(
            f"""insert into mindful.decision ({columns})
                select {columns} from pg_catalog.jsonb_populate_recordset(null::mindful.decision, $1) returning id""",
            ("jsonb",),
            (json.dumps([vars(decision) for decision in decisions]),),
        )
    ]
