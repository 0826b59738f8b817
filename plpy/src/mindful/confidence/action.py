"""What follows from a decision: the answer is shown, retried in another way, clarified, flagged or withheld."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mindful.confidence import attempt
from mindful.confidence.attempt import Asking, Attempt
from mindful.confidence.decision import UNCALIBRATED, Decision, decide, decide_answer, record
from mindful.confidence.evidence import Evidence, as_alternatives, counted, draw, gather
from mindful.confidence.signal import Signals
from mindful.conversation import clarification
from mindful.conversation.clarification import Question
from mindful.conversation.lesson import is_repeated
from mindful.conversation.prompt import OWN, UNKNOWN, Context
from mindful.conversation.reply import Reply, is_invented, unanswered
from mindful.core.errors import MindfulError
from mindful.core.ports import Database, Sampling
from mindful.generate.call import Call

_NOTICES = (
    (0.25, "I am probably wrong here"),
    (0.5, "I am not sure about this"),
    (0.75, "I am fairly, but not quite, sure of this"),
    (1.01, "I am quite sure of this"),
)
"""Fixed wordings by the probability, as a small model's own words about its certainty are no better than chance.

The SQL function _mindful.notice_removed has them too.

The first person lowers reliance on wrong answers (Kim et al. 2024, arXiv 2405.00623).
"""
_UNTOLD = "I cannot tell how sure I am of this"
"""Without a calibrator or a ranking, all answers of a model are as probable as its labels say."""


class Settings(NamedTuple):
    """Settings of a tenant or session for answers below the threshold. The defaults only flag them."""

    error_budget: float = 0
    answer_above: float = 1
    signal_tier: int = 0
    chat_retrieve: bool = False
    chat_retrieve_below: float = 0.5
    chat_retrieve_memories: int = 10
    chat_escalate: bool = False
    chat_retry: bool = False
    chat_retry_temperature: float = 0.5
    chat_clarify: bool = False
    chat_abstain_below: float = 0
    chat_flag_notice: bool = False
    label_share: float = 0

    def retrieves(self, signals: Signals) -> bool:
        """Return whether the recalled memories cover too little of the question, so that a wider recall is tried."""
        return signals.get("coverage", 1) < self.chat_retrieve_below

    def flagging(self) -> Settings:
        """Return the settings for an answer that was streamed already: it can only be flagged, see `before_answer`."""
        return Settings(
            self.error_budget,
            self.answer_above,
            chat_flag_notice=self.chat_flag_notice,
            label_share=self.label_share,
        )


def settings(values: Mapping[str, Any]) -> Settings:
    """Select the settings of this room from the settings in force."""
    return Settings(**{name: values[name] for name in Settings._fields})


class Trail:
    """The attempts at one reply, and the one to show."""

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
        """The decision about the attempt to show."""
        return self.standing.decision

    @property
    def reply(self) -> str:
        """The text to show: the answer, or what replaces it."""
        return self.standing.answer if self._instead is None else self._instead

    @property
    def role(self) -> str:
        """The role of the reply's message."""
        return "assistant" if self.question is None else "clarification"

    def try_again(self, way: str, make: Callable[[Attempt], Attempt | None], certain: bool = False) -> None:
        """Make another attempt, and show it unless it is less probable or the same.

        With certain, it is shown only if it reaches its threshold. An attempt that fails or is empty changes only the
        decision's reason and time.
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

    def replace(self, action: str, reply: str, reason: str) -> None:
        """Show another text than the answer. The decision keeps the answer."""
        self.decision.action, self.decision.reason = action, reason
        self.decision.answer, self._instead = self.standing.answer or None, reply

    def ask(self, question: Question) -> None:
        """Show a question back."""
        self.question = question
        self.replace("clarify", str(question), f"the question has more than one possible {question.of}")

    def record(self, message_id: int | None, parent_id: int | None) -> int:
        """Insert the decisions, parents before children, and return the id of the reply's decision."""
        ids: dict[int, int] = {}
        for one in self.attempts:
            decision = one.decision
            decision.parent_id = parent_id if one.parent is None else ids[id(one.parent)]
            if one is self.standing:
                decision.message_id = message_id
            else:
                decision.replaced_by_id = message_id
            [ids[id(one)]] = record(self.db, [decision])
        return ids[id(self.standing)]


def act(
    db: Database,
    wanted: Settings,
    call: Call,
    context: Context,
    sampling: Sampling,
    reply: Reply,
    session_id: str | None = None,
) -> Trail:
    """Decide about a reply. While it is flagged, take the steps that the settings enable, in order."""
    if context.acknowledges:
        # It answers no question. Labels of such replies, which are right, would pass for labels of answers.
        decision = Decision(call.spec.name, bool(context.notes), {}, action=UNCALIBRATED)
        decision.reason, decision.generation_id = "the message asks nothing", call.generation_id
        return Trail(db, wanted, sampling, Attempt(call, context, reply.text, decision))
    trail = judge(db, wanted, call, context, sampling, reply)
    trail.asking = trail.asking._replace(session_id=session_id)
    for step in (_retrieve, _weigh, _escalate, _retry, _clarify, _abstain, _offer):
        if not trail.decision.unsure:
            break
        step(trail)
    return trail


def judge(
    db: Database, wanted: Settings, call: Call, context: Context, sampling: Sampling, reply: Reply
) -> Trail:
    """Decide about a reply by the signals of tier 0."""
    started = time.perf_counter()
    decision = decide_answer(db, call, context, reply.text, budget=wanted.error_budget, quoted=reply.quoted)
    decision.total_ms = (time.perf_counter() - started) * 1000
    _let_pass(decision, wanted.answer_above)
    return Trail(db, wanted, sampling, Attempt(call, context, reply.text, decision))


def withhold(trail: Trail) -> None:
    """Reply that the answer is unknown instead of a flagged one with a name or number that its sources lack."""
    if _is_withheld(trail.standing, trail.reply):
        reason = "the answer has a name or number that its sources lack"
        trail.replace("abstain", trail.standing.context.unknown(), reason)


def shown(made: Attempt) -> str:
    """Return what is shown for an attempt, if it is the one to show."""
    return made.context.unknown() if _is_withheld(made, made.answer) else made.answer


def _is_withheld(made: Attempt, reply: str) -> bool:
    return made.decision.unsure and is_invented(made.context, reply)


def _let_pass(decision: Decision, least: float) -> None:
    """Give an answer without a certified threshold if it reaches the user's own. No threshold_id marks it as such."""
    if decision.signals.get("looped"):
        return
    if least < 1 and decision.unsure and decision.threshold is None and not is_repeated(decision.signals):
        decision.threshold, decision.threshold_id = least, None
        own = f"the setting answer_above, {least:g}, which is not certified"
        passed = decision.probability >= least
        decision.action = "answer" if passed else decision.action
        decision.reason = f"the probability {'reaches' if passed else 'is below'} {own}; {decision.reason}"


def without_answer(db: Database, wanted: Settings, call: Call, context: Context, sampling: Sampling) -> Trail:
    """Reply without asking the model: the reply is fixed, or nothing recalled answers the message."""
    decision = Decision(call.spec.name, bool(context.notes), {}, action="abstain")
    decision.reason = "no memory answers the question (setting chat_unknown)"
    if context.reply is not None:
        decision.action, decision.reason = context.reply.action, context.reply.reason
    return Trail(db, wanted, sampling, Attempt(call, context, unanswered(context).text, decision))


def before_answer(
    db: Database, wanted: Settings, call: Call, context: Context, sampling: Sampling
) -> Trail | None:
    """Ask back without an answer if the question itself has more than one meaning, for what cannot be taken back."""
    question = _of_itself(context) if wanted.chat_clarify and context.clarified is None else None
    if question is None:
        return None
    trail = Trail(
        db, wanted, sampling, Attempt(call, context, "", Decision(call.spec.name, bool(context.notes), {}))
    )
    trail.ask(question)
    return trail


def _retrieve(trail: Trail) -> None:
    """Recall more if the recalled memories cover little of the question."""
    wanted = trail.wanted
    if wanted.chat_retrieve and wanted.retrieves(trail.decision.signals):
        trail.try_again(
            "retrieve", lambda first: attempt.retrieve(trail.asking, first, wanted.chat_retrieve_memories)
        )


def _weigh(trail: Trail) -> None:
    """Gather the signals of higher tiers, and decide again if a calibrator reads them."""
    wanted, standing = trail.wanted, trail.standing
    tier = max(wanted.signal_tier, 2 if wanted.chat_escalate else 0)
    if not tier:
        return
    started, decision = time.perf_counter(), standing.decision
    spec, sampling = standing.call.spec, trail.asking.sampling
    [trail.evidence] = gather(trail.db, spec, [standing.context], [standing.answer], sampling, tier)
    attempt.attach(decision, trail.evidence)
    if trail.evidence.failure is not None:
        decision.reason += f"; {trail.evidence.failure}"
    again = decide(
        trail.db,
        decision.lineage,
        decision.with_memory,
        decision.signals,
        trail.evidence.tier,
        wanted.error_budget,
        decision.flagged_by,
    )
    if again.calibrator_id is not None:
        for name in (
            "probability",
            "calibrator_id",
            "threshold_id",
            "threshold",
            "action",
            "reason",
            "after",
            "is_ranked",
        ):
            setattr(decision, name, getattr(again, name))
    decision.total_ms += (time.perf_counter() - started) * 1000


def _escalate(trail: Trail) -> None:
    """Show the second model's answer if it reaches the threshold of the chain of both models."""
    evidence = trail.evidence
    if trail.wanted.chat_escalate and evidence is not None and evidence.second is not None:
        trail.try_again(
            "escalate", lambda first: attempt.escalate(trail.asking, first, evidence), certain=True
        )


def _retry(trail: Trail) -> None:
    """Sample again if action_evaluate has shown that this helps the model."""
    wanted, model = trail.wanted, trail.standing.call.spec.name
    if not wanted.chat_retry:
        return
    gains = trail.db.rows(
        "select helps from _mindful.action_gain_find('retry', $1, $2)",
        ("text", "real"),
        (model, wanted.chat_retry_temperature),
    )
    if gains and gains[0]["helps"]:
        trail.try_again(
            "retry", lambda first: attempt.retry(trail.asking, first, wanted.chat_retry_temperature)
        )
    else:
        trail.decision.reason += "; not retried: action_evaluate() has not shown that retry helps this model"


def _clarify(trail: Trail) -> None:
    """Ask back if the question has more than one answer, but never twice in a row."""
    standing = trail.standing
    if not trail.wanted.chat_clarify or standing.context.clarified is not None:
        return
    started, decision = time.perf_counter(), standing.decision
    try:
        question = _question(trail)
    except MindfulError as error:
        question = None
        decision.reason += f"; clarify: {error}"
    decision.total_ms += (time.perf_counter() - started) * 1000
    if question is not None:
        trail.ask(question)


def _of_itself(context: Context) -> Question | None:
    if not context.has_talk and (question := clarification.of_reference(context.question)) is not None:
        return question
    texts = [row["content"] for row in context.considered if row["role"] not in OWN]
    return clarification.of_names(context.question, texts)


def _question(trail: Trail) -> Question | None:
    standing = trail.standing
    question = _of_itself(standing.context)
    if question is not None:
        return question
    others = [other for one in trail.attempts for other in one.decision.alternatives]
    if not any("times" in other for other in others):
        [drawn] = draw(trail.db, standing.call.spec.name, [standing.context], trail.asking.sampling)
        sampled = as_alternatives(standing.call.spec.name, [text for _, text in drawn])
        standing.decision.alternatives += sampled
        others += sampled
    counts = Counter({standing.answer: 1})
    for other in others:
        counts[other["answer"]] += other.get("times", 1)
    return clarification.of_answers(counted(trail.db, counts))


def _abstain(trail: Trail) -> None:
    """Withhold an answer whose probability is below chat_abstain_below."""
    least = trail.wanted.chat_abstain_below
    if trail.decision.probability < least:
        trail.replace("abstain", UNKNOWN, f"the probability is below {least}, the setting chat_abstain_below")


def _offer(trail: Trail) -> None:
    """Offer a random share of the answers below a threshold for a label.

    Before a threshold is certified, labels of probable answers tell more, as no threshold lets the others pass. So all
    of the former are offered, and fewer of the latter.
    """
    decision, share = trail.decision, trail.wanted.label_share
    if share and decision.threshold is None:
        if not decision.is_ranked:
            return  # all answers are as probable
        share = 1.0 if decision.probability >= PROBABLE else max(share, SHARE_OF_IMPROBABLE)
    if random.random() < share:
        decision.offered, decision.propensity = True, share


PROBABLE, SHARE_OF_IMPROBABLE = 0.3, 0.25
"""Without a threshold, answers that are less probable are offered for a label with this propensity only."""


def notice(decision: Decision) -> str:
    """Return the notice of a flagged answer, worded by its probability."""
    wording = next(text for bound, text in _NOTICES if decision.probability < bound)
    wording = wording if decision.is_ranked else _UNTOLD
    percent = "" if decision.calibrator_id is None else f" (about {round(decision.probability * 100)}%)"
    return f"\n\n[{wording}{percent}.]"
