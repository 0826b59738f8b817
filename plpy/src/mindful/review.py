"""A second look at an answer, read from the logits: asked in words, a small model is always sure."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any

from mindful import runtime
from mindful.call import tokens_of
from mindful.context import shown_again
from mindful.entry import writing_function
from mindful.errors import NullValueError, UndefinedObjectError
from mindful.ports import Database, Generator, Message
from mindful.prompt import Context
from mindful.slot import Turn
from mindful.state import ConversationState

_PROMPT_VERSION = 2
_QUESTION = "Is that answer true or false?"
_LABELS = (" True", "True", " true", "true", " False", "False", " false", "false")
"""How the two labels may be written: the first half says true."""
_CONTENT_FREE = "N/A"


@writing_function
def self_review(db: Database, message_id: int | None, model: str | None) -> dict[str, Any]:
    """Have a model judge an answer, and store its verdict."""
    if message_id is None:
        raise NullValueError("message_id is null", "Give the message_id that llm_chat_detail returned.")
    rows = db.rows("select * from mindful._review_subject($1)", ("bigint",), (message_id,))
    if not rows:
        raise UndefinedObjectError(
            f"there is no answer {message_id}",
            "The answers that you may review are in mindful.conversation, role assistant.",
        )
    subject = rows[0]
    spec, generator = runtime.generator(db, model)
    started = time.perf_counter()
    context = shown_again(db, spec, generator, message_id, subject)
    tokens = reviewed(generator, context, subject["answer"])
    ConversationState(db, spec, generator, subject["session_id"]).restore(tokens)
    held = generator.held(tokens)
    with Turn(db) as turn:
        raw = log_odds(generator.next_logprobs(tokens, _LABELS, turn))
        baseline = content_free(generator, turn)
    score = 1 / (1 + math.exp(baseline - raw))
    review = {
        "score": score,
        "verdict": "supported" if score >= 0.5 else "doubtful",
        "signals": json.dumps(
            {
                "log_odds": round(raw, 4),
                "log_odds_content_free": round(baseline, 4),
                "prompt_tokens": len(tokens),
                "cached_tokens": held,
            }
        ),
    }
    db.rows(
        """insert into mindful.review (message_id, reviewer, prompt_version, score, verdict, signals, total_ms)
           values ($1, $2, $3, $4, $5, $6, $7)""",
        ("bigint", "text", "integer", "real", "text", "jsonb", "real"),
        (message_id, spec.name, _PROMPT_VERSION, *review.values(), (time.perf_counter() - started) * 1000),
    )
    return review


def review_many(
    db: Database, generator: Generator, contexts: Sequence[Context], answers: Sequence[str]
) -> list[float]:
    """Log-odds that answers are true, less those of an empty one: a single one by going on where its answer ended."""
    prompts = [
        reviewed(generator, context, answer) for context, answer in zip(contexts, answers, strict=True)
    ]
    with Turn(db, wide=len(prompts) > 1) as turn:
        rows = (
            [generator.next_logprobs(prompts[0], _LABELS, turn)]
            if len(prompts) == 1
            else generator.next_logprobs_many(prompts, _LABELS, turn)
        )
        baseline = content_free(generator, turn)
    return [log_odds(row) - baseline for row in rows]


def reviewed(generator: Generator, context: Context, answer: str) -> list[int]:
    """Go on after an answer with the question whether it is true: the cache holds all that stands before."""
    return _tokens(generator, context.messages(), answer)


def content_free(generator: Generator, turn: Turn) -> float:
    """Log-odds of an answer without content, which the model likes or not whatever is asked (Zhao et al. 2021).

    Scored beside the conversation, whose cache stays as it is, and remembered there.
    """
    tokens = _tokens(generator, [Message("user", _CONTENT_FREE)], _CONTENT_FREE)
    return log_odds(generator.next_logprobs_many([tokens], _LABELS, turn)[0])


def log_odds(logprobs: Sequence[float]) -> float:
    """Log-odds of true against false, each in all its writings: P(true) of Kadavath et al. 2022, normalised."""
    half = len(logprobs) // 2
    true, false = (math.fsum(map(math.exp, part)) for part in (logprobs[:half], logprobs[half:]))
    return math.log(max(true, _LEAST)) - math.log(max(false, _LEAST))


_LEAST = 1e-30


def _tokens(generator: Generator, messages: Sequence[Message], answer: str) -> list[int]:
    return tokens_of(generator, [*messages, Message("assistant", answer), Message("user", _QUESTION)])
