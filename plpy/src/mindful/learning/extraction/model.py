"""Facts by a generator, whose answer is constrained to JSON with a quote, a fact, a relation and an object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mindful.core.jsontext import loads
from mindful.core.ports import Database, Message, Sampling
from mindful.generate.call import Call
from mindful.generate.schema_grammar import grammar_of
from mindful.learning.extraction import Statement
from mindful.models import runtime

RELATIONS = (
    "name", "age", "birthday", "lives_in", "comes_from", "works_at", "works_as", "studies", "likes",
    "dislikes", "prefers", "has", "plans", "event", "does",
)  # fmt: skip
_FACTS = 3
"""Maximum of facts of one text. Asked for more, a small model invents them."""
_LENGTH = 160
_CONFIDENCE = 0.6


def _text(longest: int) -> dict[str, object]:
    return {"type": "string", "minLength": 1, "maxLength": longest}


SCHEMA = {
    "type": "array",
    "maxItems": _FACTS,
    "items": {
        "type": "object",
        "properties": {
            "quote": _text(200),
            "fact": _text(200),
            "relation": {"enum": list(RELATIONS)},
            "object": _text(100),
        },
        "required": ["quote", "fact", "relation", "object"],
    },
}
_SYSTEM = (
    "List what {speaker} states about {speaker} as JSON. quote: words copied from the text. "
    "fact: one sentence in the third person that begins with {speaker}. [] if the text states nothing."
)


def statements(
    db: Database, texts: Sequence[tuple[str, str | None]], model: str | None, rejected: Counter[str]
) -> Iterator[list[Statement]]:
    """Yield the statements of each pair of a text and its speaker, in order. All texts are one batch."""
    spec, generator = runtime.generator(db, model)
    sampling = Sampling(_LENGTH, grammar=grammar_of(SCHEMA, lambda value, part: True))
    calls: list[Call | None] = []
    for content, speaker in texts:
        name = speaker or "the author"
        text = generator.truncate(content, generator.context_length - 2 * _LENGTH)
        tokens = generator.encode([Message("system", _SYSTEM.format(speaker=name)), Message("user", text)])
        fits = len(tokens) + _LENGTH <= generator.context_length
        calls.append(Call(spec, generator, tokens, sampling) if fits else None)
        if not fits:
            rejected["too_long"] += 1
    answers = iter(Call.answer_many(db, [call for call in calls if call]))
    for (content, speaker), call in zip(texts, calls, strict=True):
        yield list(_read(next(answers), content, speaker or "the author", rejected)) if call else []


def _read(answer: str, content: str, speaker: str, rejected: Counter[str]) -> Iterator[Statement]:
    """Yield the facts of an answer that are quoted from the text and about the speaker. Count the others."""
    try:
        items = loads(answer)
    except ValueError:
        rejected["incomplete"] += 1
        return
    for item in items:
        quote, fact = item["quote"].strip(), item["fact"].strip()
        if not quote or quote not in content:
            rejected["quote_not_found"] += 1
        elif quote.endswith("?"):
            rejected["question"] += 1
        elif not fact.startswith(speaker):
            rejected["other_subject"] += 1
        elif item["object"].strip().lower() not in quote.lower():
            rejected["object_not_quoted"] += 1
        else:
            yield Statement(speaker, item["relation"], item["object"].strip(), fact, quote, _CONFIDENCE)
