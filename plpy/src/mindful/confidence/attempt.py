"""Other ways to an answer: more memories, other sampling, another model. Each way is judged by its own labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from mindful.confidence.decision import Decision, decide, decide_answer
from mindful.confidence.evidence import Evidence, as_alternatives, draw
from mindful.confidence.signal import AGREEMENT
from mindful.conversation.prompt import Context, Part, quote
from mindful.conversation.recall import related
from mindful.core.ports import Database, Generator, Sampling
from mindful.core.text import words
from mindful.generate.call import BLANK, Call, tokens_of
from mindful.models import runtime

_RECALL_MS = 60_000
"""Time limit of a second recall. After it the first answer is shown."""
_AROUND = 8
"""Upper bound of the tokens that the layout and a newline add to a memory."""


@dataclass
class Attempt:
    """One answer: the call that made it, its context and the decision about it."""

    call: Call
    context: Context
    answer: str
    decision: Decision
    parent: Attempt | None = None
    """The flagged attempt that this one is to improve on."""

    def replaces(self, other: Attempt) -> bool:
        """Return whether to show this one: it reaches its threshold, or it differs and is no less probable."""
        mine, theirs = self.decision, other.decision
        return mine.action == "answer" or (
            self.answer != other.answer and mine.probability >= theirs.probability
        )


class Asking(NamedTuple):
    """The connection, the sampling, the error budget and the session of attempts."""

    db: Database
    sampling: Sampling
    budget: float = 0
    session_id: str | None = None
    """None: the message begins a session, or the question is outside of sessions."""


def retrieve(asking: Asking, first: Attempt, memories: int) -> Attempt | None:
    """Answer with more memories in the prompt; None if recall finds no others (Yan et al. 2024, arXiv 2401.15884)."""
    spec, generator = runtime.generator(asking.db, first.call.spec.name)
    context = _widened(asking, generator, first.context, memories)
    if set(context.memory_ids) <= set(first.context.memory_ids):
        return None
    call = Call(spec, generator, tokens_of(generator, context.messages()), asking.sampling)
    answer = call.answer(asking.db, context.memory_ids).strip(BLANK)
    return _decided(asking, "retrieve", first, call, context, answer)


def _widened(asking: Asking, generator: Generator, context: Context, memories: int) -> Context:
    """Return the context with more memories, as many as the model's context length allows."""
    rows = asking.db.attempt(
        """select r.id, r.content, r.role, r.score, r.similarity, r.bm25
           from _mindful.chat_filter($3) f, mindful.memory_recall($1, $2, session_id => f.session_id,
               statements => f.statements, scope => coalesce(f.scope, 'all')) r
           where r.kind <> 'summary'""",
        ("text", "integer", "uuid"),
        (context.question, memories + len(context.parts), asking.session_id),
        undo=False,
        timeout_ms=_RECALL_MS,
    )
    taught = {lesson.memory_id for lesson in context.lessons}
    others = [part for part in context.parts if part.part != "memory" or part.memory_id in taught]
    shown = taught | {part.memory_id for part in others}
    reserved = min(asking.sampling.max_tokens, generator.context_length // 2)
    bare = len(generator.encode(context._replace(parts=others).messages()))
    room = generator.context_length - reserved - bare
    parts: list[Part] = []
    clarified = context.clarified
    kept = [
        row
        for row in related(rows, shown, context.question)
        if clarified is None or not clarified.rules_out(row["content"])
    ]
    for row in kept[:memories]:
        asking.db.check()
        tokens = generator.count(quote(row["content"])) + _AROUND
        room -= tokens
        if room < 0:
            break
        parts.append(
            Part("memory", "user", row["content"], tokens, row["id"], row["score"], "recalled again")
        )
    return context._replace(parts=[*others[:-1], *parts, others[-1]], considered=rows)


def retry(asking: Asking, first: Attempt, temperature: float) -> Attempt:
    """Sample more answers, and take the most frequent of all (self-consistency, Wang et al. 2022, arXiv 2203.11171)."""
    [drawn] = draw(asking.db, first.call.spec.name, [first.context], asking.sampling, temperature)
    candidates = [(first.call, first.answer), *drawn]
    votes = Counter(tuple(words(answer)) for _, answer in candidates)
    # max returns the first of equals, so a tie keeps the first answer.
    call, answer = max(candidates, key=lambda one: votes[tuple(words(one[1]))])
    made = _decided(asking, "retry", first, call, first.context, answer)
    made.decision.alternatives = as_alternatives(first.call.spec.name, [text for _, text in drawn])
    return made


def _decided(asking: Asking, way: str, first: Attempt, call: Call, context: Context, answer: str) -> Attempt:
    """Decide about an answer by another way.

    Until this way has a calibrator, the model's own calibrator gives the probability, and the answer is flagged.
    The threshold of first answers does not apply: it was tested on all first answers, not on those flagged.
    """
    lineage = first.decision.lineage.by(way)
    decision = decide_answer(asking.db, call, context, answer, budget=asking.budget)
    by_way = decide(
        asking.db,
        lineage,
        decision.with_memory,
        decision.signals,
        budget=asking.budget,
        after=first.decision.flagged_by,
    )
    if by_way.calibrator_id is not None:
        by_way.generation_id = decision.generation_id
        decision = by_way
    else:
        decision.lineage, decision.action, decision.reason = lineage, "flag", by_way.reason
        decision.threshold_id = decision.threshold = None
    return Attempt(call, context, answer, decision, first)


def escalate(asking: Asking, first: Attempt, evidence: Evidence) -> Attempt:
    """Take the second model's answer, and decide about it by the calibrator of the chain."""
    assert evidence.second is not None
    lineage = first.decision.lineage.escalated(evidence.second.spec.name)
    answer = evidence.second_answer
    agreement = {name: evidence.signals[name] for name in AGREEMENT}
    decision = decide_answer(
        asking.db,
        evidence.second,
        first.context,
        answer,
        lineage,
        asking.budget,
        agreement,
        first.decision.flagged_by,
    )
    return Attempt(evidence.second, first.context, answer, decision, first)


def attach(decision: Decision, evidence: Evidence) -> None:
    """Add the evidence about an answer to its decision."""
    decision.signals |= evidence.signals
    decision.signal_ms |= evidence.signal_ms
    decision.alternatives += evidence.alternatives
    decision.signal_tier = evidence.tier
