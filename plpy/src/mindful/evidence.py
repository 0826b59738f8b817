"""What is known of answers by asking further: an embedder, a second model, the model itself again."""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mindful import runtime
from mindful.call import BLANK, Call, tokens_of
from mindful.errors import MindfulError
from mindful.llm import embed_texts
from mindful.pattern import linear
from mindful.ports import Database, ModelSpec, Sampling
from mindful.prompt import Context
from mindful.review import review_many
from mindful.signal import Signals, words

_SAMPLES = 4
_THEN = " > "
_TEMPERATURE = 0.5
"""Of small models: at 1.0 half as many samples are right as at 0.5."""
Drawn = tuple[Call, str]
"""A sampled answer, and the call that made it."""
_ALIKE = 0.8
"""Cosine from which on two short answers say the same; numbers must be the same besides, as embeddings blur them."""
_NUMBER = linear(r"\d+")


@dataclass
class Evidence:
    """What was found of one answer, up to which tier, and what each kind of signal cost."""

    tier: int = 0
    signals: Signals = field(default_factory=dict)
    signal_ms: dict[str, float] = field(default_factory=dict)
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    second: Call | None = None
    second_answer: str = ""
    failure: str | None = None
    """Why it is no more."""


@dataclass(frozen=True)
class _Given:
    """Answers of a model to what it was shown, and what is found of each."""

    db: Database
    spec: ModelSpec
    contexts: Sequence[Context]
    answers: Sequence[str]
    sampling: Sampling
    found: Sequence[Evidence]


def gather(
    db: Database,
    spec: ModelSpec,
    contexts: Sequence[Context],
    answers: Sequence[str],
    sampling: Sampling,
    tier: int,
) -> list[Evidence]:
    """Gather the signals of answers, tier by tier; one that cannot be had ends it, and loses nothing."""
    found = [Evidence() for _ in answers]
    given = _Given(db, spec, contexts, answers, sampling, found)
    for level in range(1, tier + 1):
        for name, step in _STEPS[level].items():
            started = time.perf_counter()
            try:
                step(given)
            except MindfulError as error:
                for one in found:
                    one.failure = f"{name}: {error}"
                return found
            spent = (time.perf_counter() - started) * 1000 / max(len(found), 1)
            for one in found:
                one.signal_ms[name] = round(spent, 3)
        for one in found:
            one.tier = level
    return found


def fallback(db: Database, model: str) -> str | None:
    """Name the model that is asked where this one is not sure, if there is one that the caller may use."""
    rows = db.rows(
        """select f.name from mindful.model m, mindful._model_find('generator', m.fallback) f
           where m.name = $1 and m.fallback is not null""",
        ("text",),
        (model,),
    )
    return rows[0]["name"] if rows else None


def chain(first: str, second: str) -> str:
    """Name the two models whose answers are judged as those of one."""
    return f"{first}{_THEN}{second}"


def is_chain(model: str) -> bool:
    """Tell whether a name is that of two models."""
    return _THEN in model


def _compare(given: _Given) -> None:
    """Tell how near the answer is to the question: small models repeat what they were asked."""
    questions = _vectors(given.db, [context.question for context in given.contexts])
    answers = _vectors(given.db, given.answers)
    for one, question, answer in zip(given.found, questions, answers, strict=True):
        one.signals["question_similarity"] = _cosine(question, answer)


def _review(given: _Given) -> None:
    """Have the model look at its answer again."""
    generator = runtime.generator(given.db, given.spec.name)[1]
    reviews = review_many(given.db, generator, given.contexts, given.answers)
    for one, log_odds in zip(given.found, reviews, strict=True):
        one.signals["review_log_odds"] = log_odds


def _ask_second(given: _Given) -> None:
    """Have a second model answer too: where two models agree, they are mostly right (arXiv 2509.21837)."""
    db, answers, contexts = given.db, given.answers, given.contexts
    name = fallback(db, given.spec.name)
    if name is None:
        raise MindfulError(f'"{given.spec.name}" has no fallback')
    calls = _calls(db, name, contexts, [given.sampling] * len(contexts))
    others = [text.strip(BLANK) for text in Call.answer_many(db, calls, [one.memory_ids for one in contexts])]
    vectors = zip(_vectors(db, answers), _vectors(db, others), strict=True)
    rows = zip(given.found, answers, others, calls, vectors, strict=True)
    for one, answer, other, call, (mine, theirs) in rows:
        one.second, one.second_answer = call, other
        one.signals |= {
            "second_similarity": _cosine(mine, theirs),
            "second_agreement": float(words(answer) == words(other)),
            "second_logprob_sum": call.signals.get("logprob_sum", 0.0),
        }
        one.alternatives.append({"model": name, "answer": other})


def _ask_again(given: _Given) -> None:
    """Sample further answers: how many agree, how alike they are, and their entropy over clusters of meaning."""
    model = given.spec.name
    drawn = draw(given.db, model, given.contexts, given.sampling)
    for one, answer, sample in zip(given.found, given.answers, drawn, strict=True):
        texts = [answer, *(text for _, text in sample)]
        vectors = _vectors(given.db, texts)
        clusters = _clusters(texts, vectors)
        shares = [clusters.count(cluster) / len(clusters) for cluster in set(clusters)]
        one.signals |= {
            "sample_agreement": sum(words(text) == words(answer) for text in texts[1:]) / _SAMPLES,
            "sample_similarity": math.fsum(_cosine(vectors[0], vector) for vector in vectors[1:]) / _SAMPLES,
            "semantic_entropy": -math.fsum(share * math.log(share) for share in shares),
        }
        one.alternatives += told(model, texts[1:])


_STEPS: dict[int, dict[str, Callable[[_Given], None]]] = {
    1: {"question": _compare, "review": _review},
    2: {"second": _ask_second},
    3: {"samples": _ask_again},
}
"""What is asked at each tier, by the name under which its cost is kept."""


def kinds(tier: int) -> list[str]:
    """Name what is asked up to a tier, as decision.signal_ms does."""
    return [name for level in range(1, tier + 1) for name in _STEPS[level]]


def draw(
    db: Database,
    model: str,
    contexts: Sequence[Context],
    sampling: Sampling,
    temperature: float = _TEMPERATURE,
) -> list[list[Drawn]]:
    """Sample further answers to each context, all side by side."""
    seeds = [seed for context in contexts for seed in _seeds(context.question)]
    many = [context for context in contexts for _ in range(_SAMPLES)]
    samplings = [replace(sampling, temperature=temperature, seed=seed) for seed in seeds]
    calls = _calls(db, model, many, samplings)
    texts = Call.answer_many(db, calls, [context.memory_ids for context in many])
    drawn = [(call, text.strip(BLANK)) for call, text in zip(calls, texts, strict=True)]
    return [drawn[at : at + _SAMPLES] for at in range(0, len(drawn), _SAMPLES)]


def _seeds(question: str) -> range:
    """Give each question seeds of its own, the same each time: with the same for all, all would have the same luck."""
    digest = hashlib.sha256(question.encode()).digest()
    first = int.from_bytes(digest[:3]) * _SAMPLES + 1
    return range(first, first + _SAMPLES)


def told(model: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Tell of sampled answers, as decision.alternatives does."""
    return [{"model": model, "answer": text, "times": texts.count(text)} for text in dict.fromkeys(texts)]


def counted(db: Database, answers: Mapping[str, int]) -> dict[str, int]:
    """Count answers by meaning, the most frequent first; each meaning goes by the first answer that has it."""
    texts = list(answers)
    found: Counter[str] = Counter()
    for text, cluster in zip(texts, _clusters(texts, _vectors(db, texts)), strict=True):
        found[texts[cluster]] += answers[text]
    return dict(found.most_common())


def _calls(
    db: Database, model: str, contexts: Sequence[Context], samplings: Sequence[Sampling]
) -> list[Call]:
    spec, generator = runtime.generator(db, model)
    return [
        Call(spec, generator, tokens_of(generator, context.messages()), sampling)
        for context, sampling in zip(contexts, samplings, strict=True)
    ]


def _clusters(texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> list[int]:
    """Number each answer by the first that says the same (Farquhar et al. 2024, with embeddings for entailment)."""
    found: list[int] = []
    for at, text in enumerate(texts):
        found.append(
            next(
                first
                for first in [*found, at]
                if first == at
                or (
                    _cosine(vectors[first], vectors[at]) >= _ALIKE
                    and _NUMBER.findall(texts[first]) == _NUMBER.findall(text)
                )
            )
        )
    return found


def _vectors(db: Database, texts: Sequence[str]) -> list[Sequence[float]]:
    """Embed texts in lower case; an empty one as a full stop."""
    return embed_texts(db, [text.lower() if text.strip(BLANK) else "." for text in texts], None)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))
