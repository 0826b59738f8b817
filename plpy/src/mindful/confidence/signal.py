"""Signals of an answer without another model call: from its tokens, its words and the memories in its prompt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mindful.conversation.expected import excerpt, kind_of, plain, telling
from mindful.core.pattern import CAPITAL, IGNORECASE, linear
from mindful.core.text import words

Signals = dict[str, float]

_CAPITAL = linear(rf"\b{CAPITAL}")

_FACT = linear(
    r"\b(who|whose|whom|when|where|which|what|how (many|much|long|old|far|tall|big))\b", IGNORECASE
)
"""Words of questions that ask for a fact. Other questions (why, whether, opinions) often have no single answer."""

_COMPARED = 300
"""Characters of a question that are compared with each word of a memory."""
_NUMBER = linear(r"\d")
_FORMS = {"name": linear(rf"\s{CAPITAL}"), "time": _NUMBER, "number": _NUMBER}
"""What the answer to a kind of question has: a capital after the first word, or a digit."""

FREE = (
    "logprob_sum",
    "entropy_high",
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
"""Signals of tier 0, in the order in which calibrators use them as labels allow."""
RECALLED = (
    "stated",
    "conveyed",
    "of_kind",
    "quoted",
    "bearing",
    "lesson_same",
    "lesson",
    "coverage_best",
    "score_gap",
    "bm25_top",
)
"""Signals of answers with memories in the prompt. `quoted` is 1 for a memory's words in place of the model's, `bearing`
the score of the memory that answers the question, 0 without one. The others of `grounding` and `recalled` are stored
too: calibrators of earlier versions read them. In a fit they made the ranking worse (docs/confidence.md)."""
AGREEMENT = ("second_similarity", "second_agreement")
"""Signals that compare two models' answers. They apply to the answer of either."""
BRIEF = ("brief_within", "brief_share", "brief_logprob_sum")
"""Signals that compare an answer without memories with the same model's brief answer."""
ASKED = {
    1: ("brief_within", "brief_share", "brief_logprob_sum", "question_similarity"),
    2: ("second_similarity", "second_logprob_sum", "second_agreement"),
    3: ("sample_similarity", "sample_agreement", "semantic_entropy"),
}
"""Signals that need further model calls, by tier (calibrator.signal_tier)."""


def features(tier: int, with_memory: bool, chained: bool = False) -> list[str]:
    """Return the signals of a calibrator of a tier, or of a chain of two models, the most informative first."""
    asked = [name for level in range(1, tier + 1) for name in ASKED[level]]
    if with_memory:
        asked = [name for name in asked if name not in BRIEF]
    asked += [name for name in AGREEMENT if chained and name not in asked]
    head, tail = list(FREE[:4]), list(FREE[4:])
    return [*head, *asked, *(RECALLED if with_memory else ()), *tail]


def free(token_signals: Mapping[str, float], question: str, answer: str) -> Signals:
    """Return the signals of an answer's tokens, length, form and wording.

    The sum of log-probabilities comes first: the log-probability of the greedy sequence (Aichberger et al. 2024,
    arXiv 2412.15176). Length is a signal too, as the sum depends on it. Without tokens, as for a memory's words, the
    signals of tokens are missing.
    """
    names = (
        *("logprob_sum", "logprob_mean", "logprob_min", "logprob_first"),
        *("entropy_mean", "entropy_high", "margin_min", "looped"),
    )
    signals = {name: float(token_signals[name]) for name in names if name in token_signals}
    if "tokens" in token_signals:
        signals["log_tokens"] = math.log1p(token_signals["tokens"])
    return signals | {
        "echo": share(words(answer), words(question)),
        "capitalized": float(bool(_CAPITAL.search(answer))),
        "digits": float(any(letter.isdigit() for letter in answer)),
        "asks_fact": float(bool(_FACT.search(question))),
        "log_letters": math.log1p(len(answer)),
        "log_question": math.log1p(len(question)),
    }


def brief(answer: str, question: str, shorter: str, logprob_sum: float) -> Signals:
    """Return the signals of how an answer agrees with the same model's brief answer to the question.

    - `brief_within`: whether the answer contains the whole brief answer word by word.
    - `brief_share`: share of the brief answer's words, without those of the question, that the answer contains.
    - `brief_logprob_sum`: the log-probability of the brief answer.

    Consistency under another form of the question (Elazar et al. 2021, arXiv 2102.01017).
    """
    mine, asked, short = words(answer), set(words(question)), words(shorter)
    return {
        "brief_within": float(bool(short) and f" {' '.join(short)} " in f" {' '.join(mine)} "),
        "brief_share": share([word for word in short if word not in asked], mine),
        "brief_logprob_sum": logprob_sum,
    }


def grounding(answer: str, question: str, notes: Iterable[str]) -> Signals:
    """Return the signals of how well the memories support the answer.

    - `grounding`: share of the answer's words, without those of the question, that any memory contains.
    - `span`: whether a memory contains the whole answer word by word.
    - `support`: maximum over the memories of (share of the answer's words) * (share of the question's words), as an
      answer's words in a memory about something else are no evidence.
    - `holders`: share of the memories that contain all of the answer's words.
    """
    asked = set(words(question))
    own = [word for word in words(answer) if word not in asked]
    texts = [words(note) for note in notes]
    phrase = f" {' '.join(words(answer))} "
    return {
        "grounding": share(own, [word for note in texts for word in note]),
        "span": float(any(phrase in f" {' '.join(note)} " for note in texts)),
        "support": max((share(own, note) * share(list(asked), note) for note in texts), default=0.0),
        "holders": sum(share(own, note) == 1 for note in texts) / len(texts) if texts else 0.0,
    }


def conveyed(answer: str, question: str, notes: Iterable[str]) -> Signals:
    """Return the signals of how the answer agrees with the sentence of each memory that answers the question best.

    - `stated`: maximum over the memories of (share of the question's words) * (share of the answer's words, without
      those of the question, that the sentence contains).
    - `conveyed`: mean over the memories of the share of the sentence's words of the kind asked for, such as names and
      numbers, that the answer contains. An answer that leaves them out repeats the question.
    - `of_kind`: whether the answer has a number or a name if the question asks for one.
    """
    asked = question[:_COMPARED]
    about, said, known = words(plain(asked)), words(answer), set(words(asked))
    own = [word for word in said if word not in known]
    stated, shares = 0.0, []
    for note in notes:
        sentence = excerpt(asked, note)
        stated = max(stated, share(own, words(sentence)) * share(about, words(note)))
        shares.append(share(words(" ".join(telling(asked, sentence))), said))
    return {
        "stated": stated,
        "conveyed": math.fsum(shares) / max(len(shares), 1),
        "of_kind": float(_is_of_kind(asked, answer)),
    }


def _is_of_kind(question: str, answer: str) -> bool:
    form = _FORMS.get(kind_of(plain(question)))
    return form is None or form.search(answer) is not None


def recalled(
    scores: Sequence[float],
    similarities: Sequence[float | None],
    bm25: Sequence[float | None],
    coverage: Mapping[str, float],
) -> Signals:
    """Return the signals of how far the best memories stand out, and of how they cover the query.

    Absolute similarities do not transfer between embedders and predict poorly whether evidence was found. Gaps predict
    it better. The share of the query's words that was found, weighted by rarity, predicts it best.
    """
    signals = {
        "coverage": coverage["coverage"],
        "coverage_best": coverage["best"],
        "coverage_mean": coverage["mean"],
        "best_length": coverage["length"],
        "asking": coverage["asking"],
        "score_gap": _gap(scores),
    }
    near = [value for value in similarities if value is not None]
    shared = [value or 0.0 for value in bm25]
    return signals | {
        "similarity_top": max(near, default=0.0),
        "similarity_gap": _gap(near),
        "bm25_top": max(shared, default=0.0),
        "bm25_gap": _gap(shared),
    }


def _gap(values: Sequence[float]) -> float:
    return max(values) - min(values) if values else 0.0


def share(found: Sequence[str], among: Iterable[str]) -> float:
    """Return the share of words that are among others, or 0 without words."""
    others = set(among)
    return sum(word in others for word in found) / len(found) if found else 0.0


def rounded(signals: Mapping[str, Any]) -> Signals:
    """Return signals as they are stored: finite numbers with six decimals."""
    return {name: round(float(value), 6) for name, value in signals.items() if math.isfinite(value)}
