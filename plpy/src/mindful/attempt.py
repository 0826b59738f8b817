"""Other ways to an answer: more memories, other sampling, another model. Each is held to labels of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from mindful import runtime
from mindful.call import BLANK, Call, tokens_of
from mindful.context import related
from mindful.decision import Decision, decide, decide_answer
from mindful.evidence import Evidence, chain, draw, told
from mindful.ports import Database, Generator, Sampling
from mindful.prompt import Context, Part, quote
from mindful.signal import AGREEMENT, words

_RECALL_MS = 60_000
"""How long a second recall may take before the first answer stands."""
_AROUND = 8
"""Tokens that a layout and a line's end add to a memory, at most."""


@dataclass
class Attempt:
    """One answer: who gave it, what that was shown, and what was decided about it."""

    call: Call
    context: Context
    answer: str
    decision: Decision
    parent: Attempt | None = None
    """The attempt that was not good enough."""

    def replaces(self, other: Attempt) -> bool:
        """Tell whether to show this one: it may be given without doubt, or is another answer and no less probable."""
        mine, theirs = self.decision, other.decision
        return mine.action == "answer" or (
            self.answer != other.answer and mine.probability >= theirs.probability
        )


@dataclass(frozen=True)
class Asking:
    """What an attempt is made with."""

    db: Database
    sampling: Sampling
    budget: float = 0


def by(model: str, way: str) -> str:
    """Name a model's answers by another way: they are judged by labels of their own."""
    return f"{model} + {way}"


def retrieve(asking: Asking, first: Attempt, memories: int) -> Attempt | None:
    """Answer with more memories in view, if recall finds any (Yan et al. 2024, arXiv 2401.15884)."""
    spec, generator = runtime.generator(asking.db, first.call.spec.name)
    context = _widened(asking, generator, first.context, memories)
    if set(context.memory_ids) <= set(first.context.memory_ids):
        return None
    call = Call(spec, generator, tokens_of(generator, context.messages()), asking.sampling)
    answer = call.answer(asking.db, context.memory_ids).strip(BLANK)
    return _decided(asking, "retrieve", first, call, context, answer)


def _widened(asking: Asking, generator: Generator, context: Context, memories: int) -> Context:
    """Recall more for the same message, as much as the context has room for."""
    rows = asking.db.attempt(
        "select id, content, role, score, similarity, bm25 from mindful.memory_recall($1, $2) where kind <> 'summary'",
        ("text", "integer"),
        (context.question, memories + len(context.parts)),
        undo=False,
        timeout_ms=_RECALL_MS,
    )
    taught = {lesson.memory_id for lesson in context.lessons}
    others = [part for part in context.parts if part.part != "memory" or part.memory_id in taught]
    shown = taught | {part.memory_id for part in others}
    reserved = min(asking.sampling.max_tokens, generator.context_length // 2)
    bare = len(generator.encode(replace(context, parts=others).messages()))
    room = generator.context_length - reserved - bare
    parts: list[Part] = []
    for row in related(rows, shown, context.question)[:memories]:
        asking.db.check()
        tokens = generator.count(quote(row["content"])) + _AROUND
        room -= tokens
        if room < 0:
            break
        found = row["id"], row["score"], "recalled again"
        parts.append(Part("memory", "user", row["content"], tokens, *found))
    return replace(context, parts=[*others[:-1], *parts, others[-1]], considered=rows)


def retry(asking: Asking, first: Attempt, temperature: float) -> Attempt:
    """Sample further answers, and take what most of all say (self-consistency, Wang et al. 2022, arXiv 2203.11171)."""
    [drawn] = draw(asking.db, first.call.spec.name, [first.context], asking.sampling, temperature)
    said = [(first.call, first.answer), *drawn]
    votes = Counter(tuple(words(answer)) for _, answer in said)
    # Of those with as many votes the first, so that a tie changes nothing.
    call, answer = max(said, key=lambda one: votes[tuple(words(one[1]))])
    made = _decided(asking, "retry", first, call, first.context, answer)
    made.decision.alternatives = told(first.call.spec.name, [text for _, text in drawn])
    return made


def _decided(asking: Asking, way: str, first: Attempt, call: Call, context: Context, answer: str) -> Attempt:
    """Decide about an answer by another way.

    Its probability is that of the model's first answers until such answers have a calibrator: only that can let them
    pass, as what was not sure at first is another set than the one that a threshold of first answers was tested on.
    """
    model = by(first.decision.model, way)
    decision = decide_answer(asking.db, call, context, answer, budget=asking.budget)
    own = decide(asking.db, model, decision.with_memory, decision.signals, budget=asking.budget)
    if own.calibrator_id is not None:
        own.generation_id = decision.generation_id
        decision = own
    else:
        decision.model, decision.action, decision.reason = model, "flag", own.reason
        decision.threshold_id = decision.threshold = None
    return Attempt(call, context, answer, decision, first)


def escalate(asking: Asking, first: Attempt, evidence: Evidence) -> Attempt:
    """Take the second model's answer to what the first is not sure of."""
    assert evidence.second is not None
    model = chain(first.decision.model, evidence.second.spec.name)
    answer = evidence.second_answer
    known = {name: evidence.signals[name] for name in AGREEMENT}
    decision = decide_answer(asking.db, evidence.second, first.context, answer, model, asking.budget, known)
    return Attempt(evidence.second, first.context, answer, decision, first)


def attach(decision: Decision, evidence: Evidence) -> None:
    """Put what was found of an answer into its decision."""
    decision.signals |= evidence.signals
    decision.signal_ms |= evidence.signal_ms
    decision.alternatives += evidence.alternatives
    decision.tier = evidence.tier
