"""What follows from a decision: an answer is given, tried again in another way, asked back about, flagged, withheld."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mindful import attempt, clarification
from mindful.attempt import Asking, Attempt
from mindful.call import Call
from mindful.clarification import Question
from mindful.decision import Decision, decide, decide_answer, record
from mindful.errors import MindfulError
from mindful.evidence import Evidence, counted, draw, gather, told
from mindful.ports import Database, Sampling
from mindful.prompt import OWN, Context
from mindful.signal import Signals

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
    """What a tenant, or a session, wants done with answers that are not sure enough; by default, nothing."""

    error_budget: float = 0
    confidence_tier: int = 0
    retrieve: bool = False
    retrieve_below: float = 0.5
    retrieve_memories: int = 10
    escalate: bool = False
    retry: bool = False
    retry_temperature: float = 0.5
    clarify: bool = False
    abstain_below: float = 0
    flag_notice: bool = False
    label_share: float = 0

    def retrieves(self, signals: Signals) -> bool:
        """Tell whether what was recalled holds so little of the question that more is looked for."""
        return signals.get("coverage", 1) < self.retrieve_below

    def flagging(self) -> Settings:
        """Return what remains for an answer that has been read already: nothing else is done than to flag it."""
        return Settings(self.error_budget, flag_notice=self.flag_notice, label_share=self.label_share)


def settings(db: Database, session_id: str | None) -> Settings:
    """Read the settings in force."""
    names = list(Settings.__dataclass_fields__)
    row = db.one(
        "select " + ", ".join(f"mindful.setting_get('{name}', $1) as {name}" for name in names),
        ("uuid",),
        (session_id,),
    )
    return Settings(**{name: json.loads(row[name]) for name in names})


class Trail:
    """The attempts at one reply, and the one that stands."""

    def __init__(self, db: Database, wanted: Settings, sampling: Sampling, first: Attempt) -> None:
        self.db, self.wanted = db, wanted
        self.asking = Asking(db, sampling, wanted.error_budget)
        self.attempts = [first]
        self.standing = first
        self.evidence: Evidence | None = None
        self.question: Question | None = None
        self._instead: str | None = None

    @property
    def decision(self) -> Decision:
        """The decision about the attempt that stands."""
        return self.standing.decision

    @property
    def reply(self) -> str:
        """What is shown."""
        return self.standing.answer if self._instead is None else self._instead

    @property
    def role(self) -> str:
        """Whose turn the reply is."""
        return "assistant" if self.question is None else "clarification"

    def try_again(self, way: str, make: Callable[[Attempt], Attempt | None], certain: bool = False) -> None:
        """Make another attempt. It takes the place of the one that stands unless it is less probable, or the same.

        Where it must be certain, only if it reaches its threshold. One that fails or is silent costs nothing but its
        time.
        """
        started, before = time.perf_counter(), self.standing
        try:
            made = make(before)
        except MindfulError as error:
            made = None
            before.decision.reason += f"; {way}: {error}"
        spent = (time.perf_counter() - started) * 1000
        if made is None or not made.answer:
            before.decision.total_ms += spent
            return
        made.decision.total_ms = spent
        made.decision.answer = made.answer
        self.attempts.append(made)
        passed = made.decision.action == "answer"
        if passed or (made.replaces(before) and not certain):
            before.decision.answer, made.decision.answer = before.answer, None
            before.decision.action = way
            if passed:
                made.decision.action = way
            self.standing = made

    def say(self, action: str, reply: str, reason: str) -> None:
        """Say something else than the answer, which is kept."""
        self.decision.action, self.decision.reason = action, reason
        self.decision.answer, self._instead = self.standing.answer, reply

    def record(self, message_id: int | None, parent_id: int | None) -> int:
        """Add the decisions to the table, children after parents; return the id of the one about the reply."""
        ids: dict[int, int] = {}
        for one in self.attempts:
            decision = one.decision
            decision.parent_id = parent_id if one.parent is None else ids[id(one.parent)]
            if one is self.standing:
                decision.message_id = message_id
            else:
                decision.instead_id = message_id
            [ids[id(one)]] = record(self.db, [decision])
        return ids[id(self.standing)]


def act(
    db: Database, wanted: Settings, call: Call, context: Context, sampling: Sampling, answer: str
) -> Trail:
    """Decide about an answer; where it is flagged, do what is wanted about it, one thing after another."""
    started = time.perf_counter()
    first = Attempt(
        call, context, answer, decide_answer(db, call, context, answer, budget=wanted.error_budget)
    )
    first.decision.total_ms = (time.perf_counter() - started) * 1000
    trail = Trail(db, wanted, sampling, first)
    for step in (_retrieve, _weigh, _escalate, _retry, _clarify, _abstain, _offer):
        if trail.decision.action != "flag":
            break
        step(trail)
    return trail


def _retrieve(trail: Trail) -> None:
    """Recall more where what was recalled holds little of the question."""
    wanted = trail.wanted
    if wanted.retrieve and wanted.retrieves(trail.decision.signals):
        trail.try_again(
            "retrieve", lambda first: attempt.retrieve(trail.asking, first, wanted.retrieve_memories)
        )


def _weigh(trail: Trail) -> None:
    """Decide anew by the signals that cost something, if there is a calibrator that reads them."""
    wanted, standing = trail.wanted, trail.standing
    tier = max(wanted.confidence_tier, 2 if wanted.escalate else 0)
    if not tier:
        return
    started, decision = time.perf_counter(), standing.decision
    spec, sampling = standing.call.spec, trail.asking.sampling
    [trail.evidence] = gather(trail.db, spec, [standing.context], [standing.answer], sampling, tier)
    attempt.attach(decision, trail.evidence)
    if trail.evidence.failure is not None:
        decision.reason += f"; {trail.evidence.failure}"
    model, with_memory, reached = decision.model, decision.with_memory, trail.evidence.tier
    again = decide(trail.db, model, with_memory, decision.signals, reached, wanted.error_budget)
    if again.calibrator_id is not None:
        for name in ("probability", "calibrator_id", "threshold_id", "threshold", "action", "reason"):
            setattr(decision, name, getattr(again, name))
    decision.total_ms += (time.perf_counter() - started) * 1000


def _escalate(trail: Trail) -> None:
    """Give the second model's answer if it is likely enough: as the chain's, calibrated as such."""
    evidence = trail.evidence
    if trail.wanted.escalate and evidence is not None and evidence.second is not None:
        trail.try_again(
            "escalate", lambda first: attempt.escalate(trail.asking, first, evidence), certain=True
        )


def _retry(trail: Trail) -> None:
    """Sample again, where that was measured to help this model."""
    wanted, model = trail.wanted, trail.standing.call.spec.name
    if not wanted.retry:
        return
    known = trail.db.rows(
        "select helps from mindful._action_gain_find('retry', $1, $2)",
        ("text", "real"),
        (model, wanted.retry_temperature),
    )
    if known and known[0]["helps"]:
        trail.try_again("retry", lambda first: attempt.retry(trail.asking, first, wanted.retry_temperature))
    else:
        trail.decision.reason += "; not retried: no replay has shown that it helps, see action_measure()"


def _clarify(trail: Trail) -> None:
    """Ask back where the question has more than one answer, but never twice in a row."""
    standing = trail.standing
    if not trail.wanted.clarify or standing.context.clarified is not None:
        return
    started, decision = time.perf_counter(), standing.decision
    try:
        question = _question(trail)
    except MindfulError as error:
        question = None
        decision.reason += f"; clarify: {error}"
    decision.total_ms += (time.perf_counter() - started) * 1000
    if question is not None:
        trail.question = question
        trail.say("clarify", str(question), f"more than one {question.of} is possible")


def _question(trail: Trail) -> Question | None:
    standing = trail.standing
    texts = [row["content"] for row in standing.context.considered if row["role"] not in OWN]
    question = clarification.of_names(standing.context.question, texts)
    if question is not None:
        return question
    others = [other for one in trail.attempts for other in one.decision.alternatives]
    if not any("times" in other for other in others):
        [drawn] = draw(trail.db, standing.call.spec.name, [standing.context], trail.asking.sampling)
        sampled = told(standing.call.spec.name, [text for _, text in drawn])
        standing.decision.alternatives += sampled
        others += sampled
    counts = Counter({standing.answer: 1})
    for other in others:
        counts[other["answer"]] += other.get("times", 1)
    return clarification.of_answers(counted(trail.db, counts))


def _abstain(trail: Trail) -> None:
    """Withhold what is too improbable."""
    least = trail.wanted.abstain_below
    if trail.decision.probability < least:
        trail.say("abstain", ABSTENTION, f"the probability is below {least}, the setting abstain_below")


def _offer(trail: Trail) -> None:
    """Offer a random share of flagged answers for a label: who is asked must not depend on what was answered."""
    if random.random() < trail.wanted.label_share:
        trail.decision.offered, trail.decision.propensity = True, trail.wanted.label_share


def notice(decision: Decision) -> str:
    """Word a flag by the probability that the answer is right."""
    wording = next(text for bound, text in _NOTICES if decision.probability < bound)
    known: Any = "" if decision.calibrator_id is None else f" (about {round(decision.probability * 100)}%)"
    return f"\n\n[{wording}{known}.]"
