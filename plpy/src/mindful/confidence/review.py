"""Self-review of an answer by the log-probabilities of true and false.

Asked in words, small models always claim certainty.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any

from mindful.conversation.context import shown_again
from mindful.conversation.prompt import Context
from mindful.conversation.state import ConversationState
from mindful.core.entry import writing_function
from mindful.core.errors import NullValueError, UndefinedObjectError
from mindful.core.ports import Database, Generator, Message
from mindful.core.slot import Turn
from mindful.generate.call import tokens_of
from mindful.memory.keep import keep
from mindful.models import runtime

_PROMPT_VERSION = 2
_QUESTION = "Is that answer true or false?"
_LABELS = (" True", "True", " true", "true", " False", "False", " false", "false")
"""Spellings of the two labels. The first half is true."""
_CONTENT_FREE = "N/A"


@writing_function
def self_review(db: Database, message_id: int | None, model: str | None) -> dict[str, Any]:
    """Have a model judge an answer, and store the review."""
    if message_id is None:
        raise NullValueError("message_id is null", "Pass the message_id that llm_chat_detail returned.")
    missing = UndefinedObjectError(
        f"there is no answer {message_id}",
        "List the tenant's answers in mindful.conversation, role assistant.",
    )
    rows = db.rows("select * from _mindful.review_subject($1)", ("bigint",), (message_id,))
    if not rows:
        raise missing
    subject = rows[0]
    spec, generator = runtime.generator(db, model)
    started = time.perf_counter()
    context = shown_again(db, spec, generator, message_id, subject)
    tokens = reviewed(generator, context, subject["answer"])
    ConversationState(db, spec, generator, subject["session_id"]).restore(tokens)
    cached = generator.held(tokens)
    with Turn(db, served=generator.served) as turn:
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
                "cached_tokens": cached,
            }
        ),
    }
    if not keep(db, [message_id]):
        raise missing  # forgotten while it was judged
    db.rows(
        """insert into mindful.review (message_id, reviewer, prompt_version, score, verdict, signals, total_ms)
           values ($1, $2, $3, $4, $5, $6, $7)""",
        ("bigint", "text", "integer", "real", "text", "jsonb", "real"),
        (message_id, spec.name, _PROMPT_VERSION, *review.values(), (time.perf_counter() - started) * 1000),
    )
    return review


def reviewed(generator: Generator, context: Context, answer: str) -> list[int]:
    """Return the tokens of the review. They extend the prompt and the answer, which are cached."""
    return _tokens(generator, context.messages(), answer)


def content_free(generator: Generator, turn: Turn) -> float:
    """Return the log-odds of an answer without content: the model's bias (Zhao et al. 2021).

    They are computed in another context, so the conversation stays cached.
    """
    tokens = _tokens(generator, [Message("user", _CONTENT_FREE)], _CONTENT_FREE)
    return log_odds(generator.next_logprobs_many([tokens], _LABELS, turn)[0])


def log_odds(logprobs: Sequence[float]) -> float:
    """Return the log-odds of true against false over all spellings: P(true) of Kadavath et al. 2022, normalized."""
    half = len(logprobs) // 2
    true, false = (math.fsum(map(math.exp, part)) for part in (logprobs[:half], logprobs[half:]))
    return math.log(max(true, _LEAST)) - math.log(max(false, _LEAST))


_LEAST = 1e-30


def _tokens(generator: Generator, messages: Sequence[Message], answer: str) -> list[int]:
    return tokens_of(generator, [*messages, Message("assistant", answer), Message("user", _QUESTION)])
