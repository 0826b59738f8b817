"""Signals that need further model calls: an embedder, a second model, or the same model again."""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mindful.confidence.signal import Signals, brief
from mindful.conversation.prompt import Context
from mindful.core.errors import MindfulError
from mindful.core.pattern import linear
from mindful.core.ports import Database, ModelSpec, Sampling
from mindful.core.text import words
from mindful.generate.call import BLANK, Call, tokens_of
from mindful.generate.llm import embed_texts
from mindful.models import runtime

_SAMPLES = 4
_TEMPERATURE = 0.5
"""At 1.0 half as many samples of small models are right as at 0.5."""
_EXAMPLES = """\
Q: What is the capital of France?
A: Paris

Q: Who wrote the play Romeo and Juliet?
A: William Shakespeare

Q: In which year did World War II end?
A: 1945

Q: What is the largest planet in our solar system?
A: Jupiter

Q: Which metal has the chemical symbol Fe?
A: Iron

"""
"""Examples of brief answers. The prompt begins with them, so the model's context keeps them between calls."""
_BRIEF_TOKENS = 16
_BRIEF_CONTEXT = 1024
"""Longest prompt, with its answer, for which a brief answer is worth its cost."""
Drawn = tuple[Call, str]
"""A sampled answer, and the call that made it."""
_ALIKE = 0.8
"""Minimum cosine of answers with one meaning. Their numbers must be equal too, as embeddings blur numbers."""
_NUMBER = linear(r"\d+")


@dataclass
class Evidence:
    """The signals of one answer, the tier that they reach, and the milliseconds of each kind."""

    tier: int = 0
    signals: Signals = field(default_factory=dict)
    signal_ms: dict[str, float] = field(default_factory=dict)
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    second: Call | None = None
    second_answer: str = ""
    failure: str | None = None
    """The error that ended the gathering."""


class _Given(NamedTuple):
    """A model's answers, their contexts, and the evidence about each."""

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
    """Gather the signals of answers, tier by tier. A failed step ends the gathering and keeps the signals so far."""
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
    """Return the model's fallback, or None if it has none that the caller may use."""
    rows = db.rows(
        """select f.name from mindful.model m, _mindful.model_find('generator', m.fallback) f
           where m.name = $1 and m.fallback is not null""",
        ("text",),
        (model,),
    )
    return rows[0]["name"] if rows else None


def _compare(given: _Given) -> None:
    """Compare the answer with the question, as small models repeat the question instead of answering."""
    questions = _vectors(given.db, [context.question for context in given.contexts])
    answers = _vectors(given.db, given.answers)
    for one, question, answer in zip(given.found, questions, answers, strict=True):
        one.signals["question_similarity"] = _cosine(question, answer)


def _ask_briefly(given: _Given) -> None:
    """Have the model answer in a few words, and compare.

    With memories in the prompt this told little of the answer (docs/confidence.md), so only answers without are asked.
    """
    alone = [at for at, context in enumerate(given.contexts) if not context.notes]
    spec, generator = runtime.generator(given.db, given.spec.name)
    sampling = Sampling(_BRIEF_TOKENS, stop=("\n",))
    calls = []
    for at in alone:
        question = " ".join(given.contexts[at].question.split())
        tokens = generator.tokenize(f"{_EXAMPLES}Q: {question}\nA:", opens=True)
        if len(tokens) + _BRIEF_TOKENS > min(generator.context_length, _BRIEF_CONTEXT):
            continue
        calls.append((at, Call(spec, generator, tokens, sampling)))
    texts = Call.answer_many(given.db, [call for _, call in calls])
    for (at, call), text in zip(calls, texts, strict=True):
        given.found[at].signals |= brief(
            given.answers[at], given.contexts[at].question, text, call.signals.get("logprob_sum", 0.0)
        )


def _ask_second(given: _Given) -> None:
    """Have a second model answer too. If two models agree, they are mostly right (arXiv 2509.21837)."""
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
    """Sample more answers: their agreement, their similarity and their entropy over clusters of meaning."""
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
        one.alternatives += as_alternatives(model, texts[1:])


_STEPS: dict[int, dict[str, Callable[[_Given], None]]] = {
    1: {"question": _compare, "brief": _ask_briefly},
    2: {"second": _ask_second},
    3: {"samples": _ask_again},
}
"""The steps of each tier, by their names in decision.signal_ms."""


def kinds(tier: int) -> list[str]:
    """Return the names of the steps up to a tier, as in decision.signal_ms."""
    return [name for level in range(1, tier + 1) for name in _STEPS[level]]


def draw(
    db: Database,
    model: str,
    contexts: Sequence[Context],
    sampling: Sampling,
    temperature: float = _TEMPERATURE,
) -> list[list[Drawn]]:
    """Sample more answers to each context, all in one batch."""
    seeds = [seed for context in contexts for seed in _seeds(context.question)]
    many = [context for context in contexts for _ in range(_SAMPLES)]
    samplings = [sampling._replace(temperature=temperature, seed=seed) for seed in seeds]
    calls = _calls(db, model, many, samplings)
    texts = Call.answer_many(db, calls, [context.memory_ids for context in many])
    drawn = [(call, text.strip(BLANK)) for call, text in zip(calls, texts, strict=True)]
    return [drawn[at : at + _SAMPLES] for at in range(0, len(drawn), _SAMPLES)]


def _seeds(question: str) -> range:
    """Return a question's seeds, derived from its text. Shared seeds would correlate the samples of all questions."""
    digest = hashlib.sha256(question.encode()).digest()
    first = int.from_bytes(digest[:3]) * _SAMPLES + 1
    return range(first, first + _SAMPLES)


def as_alternatives(model: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return sampled answers in the form of decision.alternatives."""
    return [{"model": model, "answer": text, "times": texts.count(text)} for text in dict.fromkeys(texts)]


def counted(db: Database, answers: Mapping[str, int]) -> dict[str, int]:
    """Count answers by meaning, the most frequent first. The first answer with a meaning stands for it."""
    texts = list(answers)
    counts: Counter[str] = Counter()
    for text, cluster in zip(texts, _clusters(texts, _vectors(db, texts)), strict=True):
        counts[texts[cluster]] += answers[text]
    return dict(counts.most_common())


def _calls(
    db: Database, model: str, contexts: Sequence[Context], samplings: Sequence[Sampling]
) -> list[Call]:
    spec, generator = runtime.generator(db, model)
    return [
        Call(spec, generator, tokens_of(generator, context.messages()), sampling)
        for context, sampling in zip(contexts, samplings, strict=True)
    ]


def _clusters(texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> list[int]:
    """Number each answer by the first with its meaning (Farquhar et al. 2024, with embeddings for entailment)."""
    clusters: list[int] = []
    for at, text in enumerate(texts):
        clusters.append(
            next(
                first
                for first in [*clusters, at]
                if first == at
                or (
                    _cosine(vectors[first], vectors[at]) >= _ALIKE
                    and _NUMBER.findall(texts[first]) == _NUMBER.findall(text)
                )
            )
        )
    return clusters


def _vectors(db: Database, texts: Sequence[str]) -> list[Sequence[float]]:
    """Embed texts in lower case. An empty text is embedded as a full stop."""
    return embed_texts(db, [text.lower() if text.strip(BLANK) else "." for text in texts], None)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))
