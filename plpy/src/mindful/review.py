"""A second look at an answer, read from the logits: asked in words, a small model is always sure."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any

from mindful import runtime
from mindful.context import with_notes
from mindful.entry import sql_function
from mindful.errors import NullValueError, UndefinedObjectError
from mindful.llm import check_fits, check_length
from mindful.ports import Database, Generator, Message
from mindful.slot import Turn

_PROMPT_VERSION = 1
_SYSTEM = "You check answers. Reply with Yes or No only."
_CONTENT_FREE = "N/A"


@sql_function
def self_review(db: Database, message_id: int | None, model: str | None) -> dict[str, Any]:
    """Have a model judge an answer, and store its verdict."""
    if message_id is None:
        raise NullValueError("message_id is null", "Give the message_id that llm_chat_detail returned.")
    rows = db.rows(
        "select question, answer, memories from mindful._review_subject($1)", ("bigint",), (message_id,)
    )
    if not rows:
        raise UndefinedObjectError(
            f"there is no answer {message_id}",
            "The answers that you may review are in mindful.conversation, role assistant.",
        )
    spec, generator = runtime.generator(db, model)
    started = time.perf_counter()
    question, answer, memories = rows[0]["question"], rows[0]["answer"], rows[0]["memories"]
    raw = _log_odds(db, generator, question, answer, memories)
    baseline = _log_odds(db, generator, question, _CONTENT_FREE, memories)
    score = 1 / (1 + math.exp(baseline - raw))
    review = {
        "score": score,
        "verdict": "supported" if score >= 0.5 else "doubtful",
        "signals": json.dumps({"log_odds": round(raw, 4), "log_odds_content_free": round(baseline, 4)}),
    }
    db.rows(
        """insert into mindful.review (message_id, reviewer, prompt_version, score, verdict, signals, total_ms)
           values ($1, $2, $3, $4, $5, $6, $7)""",
        ("bigint", "text", "integer", "real", "text", "jsonb", "real"),
        (message_id, spec.name, _PROMPT_VERSION, *review.values(), (time.perf_counter() - started) * 1000),
    )
    return review


def _log_odds(
    db: Database, generator: Generator, question: str, answer: str, memories: Sequence[str]
) -> float:
    """Log-odds of Yes against No for whether the answer is correct."""
    subject = with_notes(
        f"Question: {question}\nAnswer: {answer}\n\nIs this answer correct? Yes or No?", memories
    )
    check_length("the answer with its memories", subject)
    tokens = generator.encode([Message("system", _SYSTEM), Message("user", subject)])
    check_fits(tokens, generator)
    with Turn(db) as turn:
        yes, no = generator.next_logprobs(tokens, ("Yes", "No"), turn)
    return yes - no
