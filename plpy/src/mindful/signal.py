"""What can be known of an answer without asking anybody: from its tokens, its words, and the memories it was shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mindful.pattern import IGNORECASE, linear

Signals = dict[str, float]

_WORD = linear(r"\w+")
_CAPITAL = linear(r"\b[^\W\d_a-z]")
_EMPTY = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "by", "did", "do", "for", "from", "in", "is", "it"}
    | {"of", "on", "or", "s", "that", "the", "they", "to", "was", "were", "with"}
)
"""Words that say nothing about what a text is about."""

_FACT = linear(
    r"\b(who|whose|whom|when|where|which|what|how (many|much|long|old|far|tall|big))\b", IGNORECASE
)
"""What a question for a fact holds; others ask why, how, whether, or what one thinks, and often have no answer."""

FREE = (
    "logprob_sum",
    "logprob_min",
    "log_tokens",
    "capitalized",
    "echo",
    "digits",
    "asks_fact",
    "logprob_mean",
    "entropy_mean",
    "log_letters",
    "log_question",
    "margin_min",
    "logprob_first",
)
"""Signals that cost nothing, in the order in which a calibrator takes them up as labels allow."""
RECALLED = (
    "holders",
    "support",
    "grounding",
    "span",
    "lesson_same",
    "lesson",
    "coverage_best",
    "score_gap",
    "coverage_mean",
    "best_length",
    "asking",
    "bm25_top",
    "coverage",
    "bm25_gap",
    "similarity_gap",
    "similarity_top",
)
"""Signals of answers that were shown memories."""
AGREEMENT = ("second_similarity", "second_agreement")
"""Signals of two models' answers, which are known of the first's and of the second's."""
ASKED = {
    1: ("question_similarity", "review_log_odds"),
    2: ("second_similarity", "second_logprob_sum", "second_agreement"),
    3: ("sample_similarity", "sample_agreement", "semantic_entropy"),
}
"""Signals that cost something, by tier (see calibrator.tier)."""


def features(tier: int, with_memory: bool, chained: bool = False) -> list[str]:
    """Name the signals that a calibrator of a tier, or of a chain of two models, reads, the most telling first."""
    asked = [name for level in range(1, tier + 1) for name in ASKED[level]]
    asked += [name for name in AGREEMENT if chained and name not in asked]
    head, tail = list(FREE[:3]), list(FREE[3:])
    return [*head, *asked, *(RECALLED if with_memory else ()), *tail]


def words(text: str) -> list[str]:
    """List the words of a text that say something, in lower case."""
    return [word for word in _WORD.findall(text.lower()) if word not in _EMPTY]


def free(token_signals: Mapping[str, float], question: str, answer: str) -> Signals:
    """Signals of an answer's tokens (see llm.signals), its length, form and wording.

    The sum of log-probabilities leads: the log-probability of the greedy sequence (Aichberger et al. 2024,
    arXiv 2412.15176). Length is one of them, as sums depend on it.
    """
    names = ("logprob_sum", "logprob_mean", "logprob_min", "logprob_first", "entropy_mean", "margin_min")
    found = {name: float(token_signals[name]) for name in names if name in token_signals}
    return found | {
        "log_tokens": math.log1p(token_signals.get("tokens", 0)),
        "echo": share(words(answer), words(question)),
        "capitalized": float(bool(_CAPITAL.search(answer))),
        "digits": float(any(letter.isdigit() for letter in answer)),
        "asks_fact": float(bool(_FACT.search(question))),
        "log_letters": math.log1p(len(answer)),
        "log_question": math.log1p(len(question)),
    }


def grounding(answer: str, question: str, notes: Iterable[str]) -> Signals:
    """How the memories bear out the answer: by its words, those of the question aside, and in each memory alone.

    `support` is the best memory's share of the answer's words times its share of the question's: words of an answer
    that stand where nothing of the question does are no evidence. `holders` is the share of memories that hold all.
    """
    asked = set(words(question))
    own = [word for word in words(answer) if word not in asked]
    held = [words(note) for note in notes]
    said = f" {' '.join(words(answer))} "
    return {
        "grounding": share(own, [word for note in held for word in note]),
        "span": float(any(said in f" {' '.join(note)} " for note in held)),
        "support": max((share(own, note) * share(list(asked), note) for note in held), default=0.0),
        "holders": sum(share(own, note) == 1 for note in held) / len(held) if held else 0.0,
    }


def recalled(
    scores: Sequence[float],
    similarities: Sequence[float | None],
    bm25: Sequence[float | None],
    covered: Mapping[str, float],
) -> Signals:
    """How the best memories stand out from the others, and how they cover the query; see _recall_coverage.

    Absolute similarities do not transfer between embedders and hardly tell whether evidence was found; gaps do better,
    and the share of the query's words that was found, weighted by rarity, does best.
    """
    found = {
        "coverage": covered["coverage"],
        "coverage_best": covered["best"],
        "coverage_mean": covered["mean"],
        "best_length": covered["length"],
        "asking": covered["asking"],
        "score_gap": _gap(scores),
    }
    near = [value for value in similarities if value is not None]
    shared = [value or 0.0 for value in bm25]
    return found | {
        "similarity_top": max(near, default=0.0),
        "similarity_gap": _gap(near),
        "bm25_top": max(shared, default=0.0),
        "bm25_gap": _gap(shared),
    }


def _gap(values: Sequence[float]) -> float:
    return max(values) - min(values) if values else 0.0


def share(found: Sequence[str], among: Iterable[str]) -> float:
    """Share of words that are among others; 0 of none."""
    known = set(among)
    return sum(word in known for word in found) / len(found) if found else 0.0


def rounded(signals: Mapping[str, Any]) -> Signals:
    """Signals as they are stored: six decimals, and numbers only."""
    return {name: round(float(value), 6) for name, value in signals.items() if math.isfinite(value)}
