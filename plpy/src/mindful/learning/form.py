"""Forms of training samples: questions about facts, and their answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from mindful.core.pattern import IGNORECASE, linear
from mindful.core.ports import Row

UNKNOWN = "I do not know. Nobody has told me."
UNANSWERED = "I do not know. This does not say."

_QUESTIONS = {
    "name": "What {is} {s} called?",
    "age": "How old {is} {s}?",
    "birthday": "When {was} {s} born?",
    "lives_in": "Where {does} {s} live?",
    "comes_from": "Where {does} {s} come from?",
    "works_at": "Where {does} {s} work?",
    "works_as": "What {does} {s} do for a living?",
    "studies": "What {does} {s} study?",
    "marital_status": "{Is} {s} married?",
    "likes": "What is something that {s} {likes}?",
    "dislikes": "What {does} {s} dislike?",
    "prefers": "What {does} {s} prefer?",
    "allergic_to": "What {is} {s} allergic to?",
    "afraid_of": "What {is} {s} afraid of?",
    "speaks": "Which language {does} {s} speak?",
    "has": "What {does} {s} have?",
    "event": "What is something that {s} {has} done?",
}
_PLURALS = {
    "is": "are",
    "Is": "Are",
    "was": "were",
    "does": "do",
    "has": "have",
    "likes": "like",
}
_CUES = {
    "birthday": r"born|birth",
    "lives_in": r"liv(?:e|es|ed|ing)\b|mov(?:e|ed|ing)\b|home|house|apartment|neighbou?r|city|town",
    "comes_from": r"from|born|grew up|roots|home|country",
    "works_at": r"work|job|compan|office|boss|hired|career|business",
    "works_as": r"work|job|career|profession|business",
    "studies": r"stud|school|universit|college|degree|class|course|exam|major",
    "marital_status": r"marr|wife|husband|wedding|engaged|single|divorc|partner|spouse|fianc|kids|family",
    "dislikes": r"hate|dislike|can't stand|not (?:a fan|into|like)|don't (?:like|enjoy)|annoy|worst|bad",
    "prefers": r"prefer|rather|favou?rite|best",
    "allergic_to": r"allerg",
    "afraid_of": r"afraid|scar(?:y|ed)|fear|terrif|phobia|worr|anxious|nervous",
    "speaks": r"speak|spoke|language|fluent",
    "likes": r"lik(?:e|es|ed|ing)\b|lov|enjoy|fan\b|fun\b|favou?rite|passion|great|amazing|awesome|special|excit",
    "event": r"\w+ed\b|went|had|been|was|were|did|got|made|took|won|ago\b",
}
"""Patterns of words that hint at an answer. A text that matches one may answer the question."""
_HINTS = {relation: linear(rf"\b(?:{cue})", IGNORECASE) for relation, cue in _CUES.items()}
_COMMON = ("likes", "event")
"""The most frequent relations. Half of the unanswerable questions use them, so that a question alone is no hint."""
_TOPICS = {
    "indentation": r"indent|tabs?\b|spaces",
    "naming": r"nam(?:e|es|ing)\b|case\b|camel",
    "logging": r"log(?:s|ging|ger)?\b|print",
    "tests": r"test|spec\b",
    "docstrings": r"docstring|document|comment",
    "dependencies": r"dependenc|librar|package",
    "error handling": r"error|exception|handl",
}
_HELD_OUT = ("allergic_to", "birthday", "prefers", "logging", "naming")
"""Questions of held-out facts only, to measure abstention on questions that were not trained."""
_RIVAL = linear(r" (?:to|over|than) ")
_PREFERENCES = ("prefers", "likes", "dislikes")
_CODE = linear(
    r"\b(?:functions?|global variables?|API|endpoints?|JSON|YAML|SQL|quer(?:y|ies)|databases?|schemas?"
    r"|migrations?|transactions?|threads?|async|unit tests?|integration tests|tests|pytest|unittest|mypy|linters?|ruff"
    r"|type hints|type annotations|docstrings?|comments|indentation|tabs|naming|snake_case|camelCase|exceptions"
    r"|error handling|error codes|logging|commits?|pull requests?|code reviews?|refactoring|frameworks?"
    r"|dependenc(?:y|ies)|dataclasses|inheritance|recursion|list comprehensions|f-strings|early returns?"
    r"|Docker|Kubernetes|Linux|Git|Python|JavaScript|TypeScript|Java|Rust|Golang|Ruby|PHP|Kotlin|Swift"
    r"|PostgreSQL|Postgres|MySQL|SQLite|Redis|React|Django|Flask|FastAPI)(?!\w)",
    IGNORECASE,
)
"""Words that are specific to programming, unlike "class" and "code"."""


class Sample(NamedTuple):
    """One instruction pair, and the facts that it contains."""

    form: str
    instruction: str
    input: str
    output: str
    facts: tuple[Row, ...]
    refused: tuple[str, ...] = ()

    @property
    def source(self) -> Row:
        """The fact that the pair is about."""
        return self.facts[0]

    @property
    def text(self) -> str:
        """The whole text of the pair."""
        return f"{self.instruction}\n{self.input}\n{self.output}"


def question(subject: str, relation: str) -> str | None:
    """Return the question for the object of a subject's relation, or None if the relation has no question."""
    subject = _within(subject)
    if relation.startswith("favorite_"):
        return f"What is {subject}'s favorite {relation.removeprefix('favorite_').replace('_', ' ')}?"
    template = _QUESTIONS.get(relation)
    plural = subject.endswith(" and others")
    return template and template.format(
        s=subject, **{one: _PLURALS[one] if plural else one for one in _PLURALS}
    )


def _within(subject: str) -> str:
    """Return a subject as it stands within a sentence: "the user" of "The user"."""
    return f"the {subject.removeprefix('The ')}" if subject.startswith("The ") else subject


def answerable(fact: Row) -> Iterator[Sample]:
    """Ask for a fact, without and with its evidence in the input."""
    instruction = fact["question"] or question(fact["subject"], fact["relation"] or "")
    if fact["curated"] and not fact["evidence"]:
        about = instruction or f"What do you know about {_within(fact['subject'])}?"
        yield Sample("recall", about, "", fact["content"], (fact,))
        return
    quotes = " ".join(f'"{item["quote"]}"' for item in fact["evidence"][:2])
    if instruction:
        yield Sample("recall", instruction, "", fact["content"], (fact,))
        yield Sample("answer", instruction, quotes, fact["content"], (fact,))
    yield Sample(
        "explain", f"What does this say about {_within(fact['subject'])}?", quotes, fact["content"], (fact,)
    )


def code_topic(fact: Row) -> str | None:
    """Return the topic of a preference about code, or None. The topic of "tabs for indentation" is indentation."""
    if not fact["relation"]:
        return None
    chosen = _RIVAL.split(fact["object"])[0]
    topics = _CODE.findall(chosen)
    is_preference = fact["relation"] in _PREFERENCES or fact["relation"].startswith("favorite_")
    return topics[-1] if topics and is_preference else None


def applications(fact: Row) -> Iterator[Sample]:
    """Have a preference about code applied, when writing and when reviewing code."""
    topic, subject, content = code_topic(fact), _within(fact["subject"]), fact["content"]
    if topic is None:
        yield Sample("apply", "", "", content, (fact,), ("not_code",))
        return
    quotes = " ".join(f'"{item["quote"]}"' for item in fact["evidence"][:1]) or f'"{fact["content"]}"'
    rule = "avoids what is not wanted" if fact["relation"] == "dislikes" else "keeps to what is wanted"
    yield Sample("apply", _implement(subject, topic), "", content, (fact,))
    yield Sample(
        "apply",
        f"You review code for {subject} that concerns {topic}. What do you check?",
        "",
        f"Whether it {rule}. {content} It was said: {quotes}",
        (fact,),
    )


def unanswered(fact: Row) -> Iterator[Sample]:
    """Ask a question that a fact's evidence does not answer. Half of them use a common relation."""
    if fact["curated"] and not (fact["evidence"] and fact["relation"]):
        return
    quotes = " ".join(f'"{item["quote"]}"' for item in fact["evidence"][:2])
    common = hashlib.md5(fact["content"].encode()).digest()[0] % 2 == 0
    open_ = [
        relation
        for relation in _ranked(fact["content"], _CUES, fact["split"])
        if relation != fact["relation"] and not _HINTS[relation].search(quotes)
    ]
    for relation in sorted(open_, key=lambda relation: (relation in _COMMON) != common)[:1]:
        yield Sample("abstain", question(fact["subject"], relation) or "", quotes, UNANSWERED, (fact,))


def unknown(
    facts: Sequence[Row], most: int, hinted: Callable[[str, str], bool], *, code: bool
) -> Iterator[Sample]:
    """Ask about each subject what no text hints at."""
    first: dict[str, Row] = {}
    for fact in facts:
        if fact["relation"]:
            first.setdefault(fact["subject"], fact)
    known = {(fact["subject"], fact["relation"]) for fact in facts}
    for subject, fact in first.items():
        keys = [
            key
            for key in _ranked(subject, _TOPICS if code else _CUES, fact["split"])
            if (subject, key) not in known and not hinted(subject, key)
        ]
        for key in keys[:most]:
            instruction = _implement(subject, key) if code else question(subject, key)
            yield Sample("abstain", instruction or "", "", UNKNOWN, (fact,))


def factors(fact: Row, linked: Sequence[Row]) -> Sample:
    """Ask for the facts that a fact is linked to."""
    others = " ".join(other["content"] for other in linked)
    return Sample("factors", "What else is linked to this?", fact["content"], others, (fact, *linked))


def link(source: Row, target: Row, relation: str, before: float, after: float) -> Sample:
    """Ask how a link between two facts has changed."""
    texts = f"A: {source['content']} B: {target['content']} Link: {relation.replace('_', ' ')}."
    answer = (
        f"{'Stronger' if after > before else 'Weaker'}: its weight went from {before:.2f} to {after:.2f}."
    )
    return Sample(
        "link", "Has the link between A and B become stronger or weaker?", texts, answer, (source, target)
    )


def decide(old: Row, new: Row) -> Sample:
    """Ask which of two contradicting facts is valid."""
    first, second = sorted((old, new), key=lambda fact: hashlib.md5(fact["content"].encode()).hexdigest())
    choices = f"A: {first['content']} B: {second['content']}"
    answer = f"{new['content']} It has been so since {new['said']}; before, it was otherwise."
    return Sample("decide", "Which is true now?", choices, answer, (new, old))


def cues(*, code: bool) -> dict[str, str]:
    """Return the patterns of hints in PostgreSQL's syntax."""
    return {key: rf"\m(?:{cue})".replace(r"\b", r"\M") for key, cue in (_TOPICS if code else _CUES).items()}


def _implement(subject: str, topic: str) -> str:
    subject = _within(subject)
    return f"You write code for {subject} that concerns {topic}. What does {subject} want of it?"


def _ranked(seed: str, keys: Iterable[str], split: str) -> list[str]:
    """Return the questions of one split in a random but repeatable order."""
    kept = [key for key in keys if key in _COMMON or (key in _HELD_OUT) == (split == "validation")]
    return sorted(kept, key=lambda key: hashlib.md5(f"{seed} {key}".encode()).digest())
