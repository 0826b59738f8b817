"""Questions that two memories answer together: one names what the question describes, the other tells of that name."""

from __future__ import annotations

from mindful.conversation.asked import thing_named
from mindful.conversation.bearing import LONGEST, Bearing
from mindful.conversation.naming import name_given
from mindful.core.pattern import IGNORECASE, linear

_MOST = 3
"""Memories, the most similar first, that may name what the question describes."""
_WORD = linear(r"[^\W_]+(?:['\u2019]s\b)?")
_DETERMINED = linear(r"\b(?:the|my|our|his|her|their|a|an) $", IGNORECASE)
_GAP = linear(r"\s+(?:(?:of|at|in|on|to|by|for|from|with|the|my|our|a|an)\s+)*", IGNORECASE)
_TITLES = frozenset(
    _WORD.findall("dr mr mrs ms prof st frau herr professor doctor sister brother father signora signor the")
)
_POSSESSIVE = linear(r"['\u2019]s?$")


def named_instead(found: Bearing) -> tuple[int, str, str] | None:
    """Return a memory that names what a question describes, the name, and the question with the name in its place.

    Of a full name it is the first part, as other memories may have that alone. With "The harbor master is Birgit.",
    "Where is the harbor master's office?" becomes "Where is Birgit's office?".
    """
    if not found.asks or thing_named(found.question) is not None:
        return None
    if found.answering and not found.beyond[found.answering[0]]:
        return None
    for id_ in sorted(found.near(), key=lambda one: -found.similarities[one])[:_MOST]:
        held = [word.strip("?.,!") for word in found.held[id_].split()]
        name = _name(held, found.question, found.contents[id_])
        if name is not None:
            return id_, name, _replaced(found.question, held, name)
    return None


def _name(held: list[str], question: str, memory: str) -> str | None:
    if len(memory) > LONGEST:
        return None
    for word in held:
        noun = _POSSESSIVE.sub("", word)
        name = name_given(f"Who is the {noun}?", memory) if noun.islower() else None
        short: str | None = next(
            (part for part in _WORD.findall(name or "") if part.lower() not in _TITLES), None
        )
        if short is not None and short.lower() not in question.lower():
            return short
    return None


def _replaced(question: str, held: list[str], name: str) -> str:
    """Replace a question's words that a memory has, as far as they stand side by side, by a name."""
    places = [match.span() for match in _WORD.finditer(question) if match[0] in held]
    start, end = places[0] if places else (len(question), len(question))
    for place in places[1:]:
        if _GAP.fullmatch(question[end : place[0]]):
            end = place[1]
    before = _DETERMINED.sub("", question[:start])
    own = "'s" if _POSSESSIVE.search(question[start:end]) else ""
    return f"{before}{name}{own}{question[end:]}"
