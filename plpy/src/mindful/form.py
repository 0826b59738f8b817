"""Forms of training samples: what is asked about facts, and what is to be answered."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mindful.pattern import IGNORECASE, linear
from mindful.ports import Row

UNTOLD = "I do not know. Nobody has told me."
UNSAID = "I do not know. This does not say."

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
"""Words by which a text may answer a question: where any of them stands, the question is not called unanswerable."""
_HINTS = {relation: linear(rf"\b(?:{cue})", IGNORECASE) for relation, cue in _CUES.items()}
_COMMON = ("likes", "event")
"""What facts tell most often: asked of texts that tell something else, or the question alone would say to abstain."""
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
"""Asked of held-out facts alone: what is measured is whether a model abstains from what it was not trained to."""
_RIVAL = linear(r" (?:to|over|than) ")
_WISHES = ("prefers", "likes", "dislikes")
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
"""Words of programming that mean little else: a "class" may be one of yoga, and "code" is vague."""


@dataclass(frozen=True)
class Sample:
    """One instruction pair, and the facts that it tells of."""

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
        """All of its words."""
        return f"{self.instruction}\n{self.input}\n{self.output}"


def question(subject: str, relation: str) -> str | None:
    """Return what asks for a subject's object, if the relation can be asked for."""
    if relation.startswith("favorite_"):
        return f"What is {subject}'s favorite {relation.removeprefix('favorite_').replace('_', ' ')}?"
    asked = _QUESTIONS.get(relation)
    plural = subject.endswith(" and others")
    return asked and asked.format(s=subject, **{one: _PLURALS[one] if plural else one for one in _PLURALS})


def told(fact: Row) -> Iterator[Sample]:
    """Ask for a fact: without its words, and with them."""
    asked = question(fact["subject"], fact["relation"])
    quotes = " ".join(f'"{item["quote"]}"' for item in fact["evidence"][:2])
    if asked:
        yield Sample("recall", asked, "", fact["content"], (fact,))
        yield Sample("answer", asked, quotes, fact["content"], (fact,))
    yield Sample("explain", f"What does this say about {fact['subject']}?", quotes, fact["content"], (fact,))


def wished(fact: Row) -> str | None:
    """Return what of programming a fact wishes something of, if it does: of "tabs for indentation", indentation."""
    chosen = _RIVAL.split(fact["object"])[0]
    topics = _CODE.findall(chosen)
    wish = fact["relation"] in _WISHES or fact["relation"].startswith("favorite_")
    return topics[-1] if topics and wish else None


def applied(fact: Row) -> Iterator[Sample]:
    """Have a wish about code applied: where it is written, and where it is reviewed."""
    topic, subject, content = wished(fact), fact["subject"], fact["content"]
    if topic is None:
        yield Sample("apply", "", "", content, (fact,), ("not_code",))
        return
    quotes = " ".join(f'"{item["quote"]}"' for item in fact["evidence"][:1])
    kept = "avoids what is not wanted" if fact["relation"] == "dislikes" else "keeps to what is wanted"
    yield Sample("apply", _implement(subject, topic), "", content, (fact,))
    yield Sample(
        "apply",
        f"You review code for {subject} that concerns {topic}. What do you check?",
        "",
        f"Whether it {kept}. {content} It was said: {quotes}",
        (fact,),
    )


def unsaid(fact: Row) -> Iterator[Sample]:
    """Ask what a fact's words do not answer: every other time what other facts do, else what seldom is told."""
    quotes = " ".join(f'"{item["quote"]}"' for item in fact["evidence"][:2])
    common = hashlib.md5(fact["content"].encode()).digest()[0] % 2 == 0
    open_ = [
        relation
        for relation in _ranked(fact["content"], _CUES, fact["split"])
        if relation != fact["relation"] and not _HINTS[relation].search(quotes)
    ]
    for relation in sorted(open_, key=lambda relation: (relation in _COMMON) != common)[:1]:
        yield Sample("abstain", question(fact["subject"], relation) or "", quotes, UNSAID, (fact,))


def untold(
    facts: Sequence[Row], most: int, hinted: Callable[[str, str], bool], *, code: bool
) -> Iterator[Sample]:
    """Ask of each subject what may be asked of anybody, and what no text has a word of."""
    first: dict[str, Row] = {}
    for fact in facts:
        first.setdefault(fact["subject"], fact)
    known = {(fact["subject"], fact["relation"]) for fact in facts}
    for subject, fact in first.items():
        keys = [
            key
            for key in _ranked(subject, _TOPICS if code else _CUES, fact["split"])
            if (subject, key) not in known and not hinted(subject, key)
        ]
        for key in keys[:most]:
            asked = _implement(subject, key) if code else question(subject, key)
            yield Sample("abstain", asked or "", "", UNTOLD, (fact,))


def factors(fact: Row, linked: Sequence[Row]) -> Sample:
    """Ask what a fact is linked to."""
    others = " ".join(other["content"] for other in linked)
    return Sample("factors", "What else is linked to this?", fact["content"], others, (fact, *linked))


def decide(old: Row, new: Row) -> Sample:
    """Ask which of two contradicting facts is valid."""
    first, second = sorted((old, new), key=lambda fact: hashlib.md5(fact["content"].encode()).hexdigest())
    choices = f"A: {first['content']} B: {second['content']}"
    answer = f"{new['content']} It has been so since {new['said']}; before, it was otherwise."
    return Sample("decide", "Which is true now?", choices, answer, (new, old))


def cues(*, code: bool) -> dict[str, str]:
    """Return the words that hint at an answer, as patterns that PostgreSQL reads."""
    return {key: rf"\m(?:{cue})".replace(r"\b", r"\M") for key, cue in (_TOPICS if code else _CUES).items()}


def _implement(subject: str, topic: str) -> str:
    return f"You write code for {subject} that concerns {topic}. What does {subject} want of it?"


def _ranked(seed: str, keys: Iterable[str], split: str) -> list[str]:
    """Return what may be asked in one split, in an order that is the same each time."""
    kept = [key for key in keys if key in _COMMON or (key in _HELD_OUT) == (split == "validation")]
    return sorted(kept, key=lambda key: hashlib.md5(f"{seed} {key}".encode()).digest())
