"""Links between facts: stated together, one after the other, or one because of the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindful.core.pattern import CAPITAL, linear
from mindful.learning.extraction.resolution import Fact, words

_NAME = linear(rf"\b{CAPITAL}[\w'-]+(?: {CAPITAL}[\w'-]+)*")
_WEIGHTS = {"cooccurs": 0.5, "follows": 0.3, "causes": 0.9, "refines": 0.8, "contradicts": 0.9}


class Links:
    """Links between the facts of texts, added in the order of the statements."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Fact, Fact, str]] = []
        self._last: tuple[Fact, int, str | None, int | None] | None = None

    def add(
        self, fact: Fact, source_id: int, session_id: str | None, turn: int | None, *, cause: bool
    ) -> None:
        """Link a fact to the one stated before it, in the same text or in the turn before."""
        if self._last is not None and self._last[0] is not fact:
            before, source, session, last_turn = self._last
            if source == source_id:
                self._pairs.append((fact, before, "causes") if cause else (before, fact, "cooccurs"))
            elif session is not None and session == session_id and turn is not None and last_turn == turn - 1:
                self._pairs.append((before, fact, "follows"))
        self._last = (fact, source_id, session_id, turn)

    def rows(self, news: Sequence[Fact]) -> list[dict[str, Any]]:
        """Return the links as rows, once all facts have ids."""
        pairs = list(self._pairs)
        for fact in news:
            pairs += [(fact, other, "refines") for other in fact.refines]
            pairs += [(fact, other, "contradicts") for other in fact.contradicts]
        return [
            {
                "source_id": source.id,
                "target_id": target.id,
                "relation": relation,
                "weight": _WEIGHTS[relation],
            }
            for source, target, relation in pairs
        ]


def entities(fact: Fact) -> set[str]:
    """Return the entities of a fact except its speaker: names, and an object of one or two words."""
    names = {name.lower() for name in _NAME.findall(fact.object)}
    if "'s " in fact.subject:
        names.add(fact.subject.lower())
    meaning = words(fact.object)
    if len(meaning) <= 2:
        names.add(" ".join(sorted(meaning)))
    return names
