"""Resolution of new statements against known facts: the same, a refinement, a contradiction, or new."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from mindful.core.pattern import linear
from mindful.learning.extraction import OPPOSITES, Statement, is_single

_WORD = linear(r"[\w']+")
_PASSING = ("event", "plans", "does")
_RIVALS = 1000
"""Maximum of facts that a new one is compared with: the newest of its subject and relation."""
_REFINED = 10
"""Maximum of facts that one fact refines."""
_NEAR = timedelta(days=30)
"""Maximum distance of two statements of the same event, plan or activity."""
_STOP_WORDS = frozenset(
    ("a", "an", "the", "my", "their", "his", "her", "its", "our", "some", "of", "to", "in", "on", "at", "for", "with",
     "and", "also", "just", "really", "very")
)  # fmt: skip


@dataclass
class Fact:
    """A stored fact, or a new one without an id."""

    subject: str
    relation: str
    object: str
    at: datetime
    id: int | None = None
    statement: Statement | None = None
    sources: list[tuple[int, str]] = field(default_factory=list)
    """New evidence: ids of texts, and quotes."""
    refines: list[Fact] = field(default_factory=list)
    contradicts: list[Fact] = field(default_factory=list)
    until: datetime | None = None
    superseded_by: Fact | None = None
    words: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.words = words(self.object)


def words(text: str) -> frozenset[str]:
    """Return the words of a text without stop words, or all words if there are only stop words."""
    every = frozenset(_WORD.findall(text.lower()))
    return (every - _STOP_WORDS) or every


class Resolver:
    """Resolves statements in order, each against the stored facts and the statements before it."""

    def __init__(self, known: Iterable[Fact]) -> None:
        self._facts: dict[tuple[str, str], list[Fact]] = defaultdict(list)
        self.news: list[Fact] = []
        self._changed: dict[int, Fact] = {}
        for fact in known:
            self._facts[fact.subject.lower(), fact.relation].append(fact)

    def add(self, statement: Statement, source_id: int, at: datetime) -> Fact:
        """Add a statement of a text written at a time, and return the fact that it supports."""
        fact = Fact(statement.subject, statement.relation, statement.object, at, statement=statement)
        rivals = self._facts[fact.subject.lower(), fact.relation]
        recent = rivals[-_RIVALS:]
        same = next((rival for rival in recent if _is_same(rival, fact)), None)
        if same is not None:
            same.sources.append((source_id, statement.quote))
            self._touch(same)
            return same
        fact.sources.append((source_id, statement.quote))
        fact.refines = [rival for rival in recent if rival.until is None and rival.words < fact.words][
            -_REFINED:
        ]
        if not fact.refines:
            self._contradict(fact, recent)
        rivals.append(fact)
        self.news.append(fact)
        return fact

    def _contradict(self, fact: Fact, rivals: list[Fact]) -> None:
        """Close the facts that contradict this one, or this one if it is older."""
        opposites = self._facts[fact.subject.lower(), OPPOSITES.get(fact.relation, "")]
        others = list(rivals) if is_single(fact.subject, fact.relation) else []
        others += [rival for rival in opposites[-_RIVALS:] if rival.words == fact.words]
        for rival in others:
            if rival.until is not None and rival.until <= fact.at:
                continue
            fact.contradicts.append(rival)
            if rival.at <= fact.at:
                rival.until, rival.superseded_by = fact.at, fact
                self._touch(rival)
            elif fact.until is None or rival.at < fact.until:
                fact.until, fact.superseded_by = rival.at, rival

    def _touch(self, fact: Fact) -> None:
        if fact.id is not None:
            self._changed[fact.id] = fact

    @property
    def changed(self) -> list[Fact]:
        """The stored facts with new evidence or a new end."""
        return list(self._changed.values())


def _is_same(known: Fact, new: Fact) -> bool:
    if known.until is not None and not (known.at <= new.at < known.until):
        return False
    if new.relation in _PASSING and abs(known.at - new.at) > _NEAR:
        return False
    return new.words <= known.words
