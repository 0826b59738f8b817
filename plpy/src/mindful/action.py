"""What follows from a decision: the answer is shown, flagged, taken from a second model, or withheld."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from mindful.context import Context
from mindful.decision import Decision, decide, decide_answer
from mindful.evidence import Evidence, chain, gather
from mindful.llm import Call
from mindful.ports import Database, Sampling

ABSTENTION = "I do not know."
_NOTICES = (
    (0.25, "I am probably wrong here"),
    (0.5, "I am not sure about this"),
    (0.75, "I am fairly, but not quite, sure of this"),
    (1.01, "I am quite sure of this"),
)
"""Fixed wordings by the probability: a small model's own words about its certainty are chance. In the first person,
which lowers reliance on wrong answers (Kim et al. 2024, arXiv 2405.00623)."""


@dataclass(frozen=True)
class Settings:
    """What a tenant, or a session, wants done with answers that are not sure enough."""

    confidence_tier: int
    escalate: bool
    abstain_below: float
    flag_notice: bool


def settings(db: Database, session_id: str | None) -> Settings:
    """Read the settings in force."""
    names = list(Settings.__dataclass_fields__)
    row = db.one(
        "select " + ", ".join(f"mindful.setting_get('{name}', $1) as {name}" for name in names),
        ("uuid",),
        (session_id,),
    )
    return Settings(**{name: json.loads(row[name]) for name in names})


@dataclass
class Outcome:
    """The answer to show, and the decisions that led to it, the last of them about it."""

    answer: str
    decisions: list[Decision]

    @property
    def decision(self) -> Decision:
        """The decision about the answer that is shown."""
        return self.decisions[-1]


def act(
    db: Database, wanted: Settings, call: Call, context: Context, sampling: Sampling, answer: str
) -> Outcome:
    """Decide about an answer; where it is flagged, do what is wanted about it."""
    started = time.perf_counter()
    first = decide_answer(db, call, context, answer)
    outcome = Outcome(answer, [first])
    tier = max(wanted.confidence_tier, 2 if wanted.escalate else 0)
    if first.action == "flag" and tier:
        [evidence] = gather(db, call.spec, [context], [answer], sampling, tier)
        _weigh(db, first, evidence)
        if first.action == "flag" and wanted.escalate and evidence.second is not None:
            _escalate(db, outcome, evidence, context)
    if outcome.decision.action == "flag" and outcome.decision.probability < wanted.abstain_below:
        outcome.decision.answer, outcome.answer = outcome.answer, ABSTENTION
        outcome.decision.action = "abstain"
        outcome.decision.reason = (
            f"the probability is below {wanted.abstain_below}, the setting abstain_below"
        )
    outcome.decision.total_ms = (time.perf_counter() - started) * 1000
    return outcome


def attach(decision: Decision, evidence: Evidence) -> None:
    """Put what was found of an answer into its decision."""
    decision.signals |= evidence.signals
    decision.signal_ms |= evidence.signal_ms
    decision.alternatives += evidence.alternatives
    decision.tier = evidence.tier


def _weigh(db: Database, decision: Decision, evidence: Evidence) -> None:
    """Decide anew by all signals, if there is a calibrator that reads them."""
    attach(decision, evidence)
    if evidence.failure is not None:
        decision.reason += f"; {evidence.failure}"
    again = decide(db, decision.model, decision.with_memory, decision.signals, evidence.tier)
    if again.calibrator_id is not None:
        for name in ("probability", "calibrator_id", "threshold_id", "threshold", "action", "reason"):
            setattr(decision, name, getattr(again, name))


def _escalate(db: Database, outcome: Outcome, evidence: Evidence, context: Context) -> None:
    """Show the second model's answer if it is likely enough: as the chain's answer, calibrated as such."""
    assert evidence.second is not None
    second = decide_second(db, outcome.decision, evidence, context)
    if second.action != "answer":
        return
    outcome.decision.answer, second.answer = outcome.answer, None
    outcome.decision.action = second.action = "escalate"
    outcome.answer = evidence.second_answer
    outcome.decisions.append(second)


def decide_second(db: Database, first: Decision, evidence: Evidence, context: Context) -> Decision:
    """Decide about the second model's answer to what the first is not sure of."""
    assert evidence.second is not None
    model = chain(first.model, evidence.second.spec.name)
    second = decide_answer(db, evidence.second, context, evidence.second_answer, model)
    for name in ("second_similarity", "second_agreement"):
        second.signals[name] = evidence.signals[name]
    second.answer = evidence.second_answer
    return second


def notice(decision: Decision) -> str:
    """Word a flag by the probability that the answer is right."""
    wording = next(text for bound, text in _NOTICES if decision.probability < bound)
    known: Any = "" if decision.calibrator_id is None else f" (about {round(decision.probability * 100)}%)"
    return f"\n\n[{wording}{known}.]"
