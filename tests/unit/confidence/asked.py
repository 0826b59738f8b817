"""An answered question, and what decisions about it need."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mindful.confidence.attempt import Attempt
from mindful.confidence.decision import Decision
from mindful.conversation.prompt import LAYOUT, Context, Part
from mindful.core.ports import Row, Sampling
from mindful.generate.call import Call, tokens_of
from mindful.models import runtime
from unit.fakes import Answer, FakeDatabase, scripted

COVERED = {"coverage": 0.5, "best": 0.5, "mean": 0.5, "length": 2.0, "asking": 0.0}
CALIBRATED = {
    "id": 7,
    "features": ["logprob_mean"],
    "means": [0.0],
    "scales": [1.0],
    "weights": [10.0],
    "intercept": 2.0,
    "knots_x": [],
    "knots_y": [],
    "threshold_id": 8,
    "threshold": 0.5,
    "reason": "certified",
}
"""Probability 0.73 where each token's log-probability is -0.1."""


def context_of(question: str = "Who is it?", *memories: str) -> Context:
    """What is shown for a question."""
    notes = [Part("memory", "user", text, 5, at, 0.9) for at, text in enumerate(memories, 1)]
    return Context(
        [Part("system", "system", "Be brief.", 3), *notes, Part("message", "user", question, 4)], LAYOUT
    )


def database(
    answers: dict[str, Answer] | None = None,
    embedder: Row | None = None,
    fallback: str | None = None,
    calibrators: dict[str, Row] | None = None,
    labels: tuple[int, int] = (0, 0),
    **generators: Row,
) -> FakeDatabase:
    """A database with these models; calibrators are by the model and ways of the answers that they judge."""

    def calibrator(model: str, ways: Sequence[str], second: str | None, *_: object) -> Sequence[Row]:
        found = (calibrators or {}).get(" ".join([model, *ways, *filter(None, [second])]))
        return [found or {"id": None, "labels": labels[0], "correct": labels[1]}]

    known: dict[str, Answer] = {
        "m.fallback is not null": [{"name": fallback}] if fallback else [],
        "_mindful.calibrator_find": calibrator,
        "_mindful.recall_coverage": [COVERED],
        "insert into mindful.decision": lambda rows: [
            {"id": 1000 + at} for at, _ in enumerate(json.loads(rows))
        ],
    }
    return FakeDatabase((answers or {}) | known | scripted(embedder, **generators))


def answered(
    db: FakeDatabase, context: Context, model: str | None = None, **sampling: Any
) -> tuple[Call, str]:
    """Have a model answer."""
    spec, generator = runtime.generator(db, model)
    call = Call(spec, generator, tokens_of(generator, context.messages()), Sampling(**sampling))
    return call, call.answer(db, context.memory_ids)


def attempt_of(
    db: FakeDatabase, context: Context | None = None, probability: float = 0.5, **decided: Any
) -> Attempt:
    """A first attempt, flagged unless it is said otherwise."""
    shown = context_of() if context is None else context
    call, answer = answered(db, shown)
    decision = Decision(
        call.spec.name, bool(shown.notes), dict(call.signals), probability=probability, **decided
    )
    return Attempt(call, shown, answer, decision)
