"""Questions that two memories answer together: one names what the question describes, the other tells of that name."""

from __future__ import annotations

from collections.abc import Iterator

from mindful.conversation.asked import thing_named
from mindful.conversation.bearing import LONGEST, Bearing
from mindful.conversation.naming import name_given, names_in
from mindful.core.pattern import IGNORECASE, Short, linear

_MOST = 3
"""Memories, the most similar first, that may name what the question describes."""
_TRIED = 2
"""Names of such a memory that are tried."""
_WORD = linear(r"[^\W_]+(?:['\u2019]s\b)?")
_DETERMINED = linear(r"\b(?:the|my|our|his|her|their|a|an) $", IGNORECASE)
_GAP = linear(r"\s+(?:(?:of|at|in|on|to|by|for|from|with|the|my|our|a|an)\s+)*", IGNORECASE)
_TITLES = frozenset(
    _WORD.findall("dr mr mrs ms prof st frau herr professor doctor sister brother father signora signor the")
)
_POSSESSIVE = linear(r"['\u2019]s?$")
_SOMEBODY = (
    r"[a-z-]+(?:er|or|ist|ian|ant|ess|mate|m[ae]n)|person|people|girl|boy|guy|lady|gentleman|friend|colleague|boss|"
    r"chair|head|kid|child|son|wife|husband|couple|family|company|firm|shop|school|one"
)
_DO = linear(r"\b(?:do|does|did) $", IGNORECASE)
_CLAUSE = Short(
    rf"(?=(\b(?:the|my|our|his|her|their) (?:[\w-]+ ){{0,2}}(?:[\w-]+,? (?:who|whom|whose|that|which)|"
    rf"(?:{_SOMEBODY}) (?:with|of|in|on|at|from|behind|for))\b))",
    LONGEST,
    IGNORECASE,
)
"""A description by a clause: "the friend who gave me my watch", "the person with ticket 5521"."""


def named_instead(found: Bearing) -> Iterator[tuple[int, str, str]]:
    """Yield memories that may name what a question describes, the name, and the question with the name in its place.

    Of a full name it is the first part, as other memories may have that alone. With "The harbor master is Birgit.",
    "Where is the harbor master's office?" becomes "Where is Birgit's office?".
    """
    question = found.question
    if not found.asks or thing_named(question) is not None:
        return
    if found.answering and not found.beyond[found.answering[0]]:
        return
    near = [id_ for id_ in found.near() if id_ not in found.outdated and len(found.contents[id_]) <= LONGEST]
    for id_ in sorted(near, key=lambda one: -found.similarities[one])[:_MOST]:
        held = [word.strip("?.,!") for word in found.held[id_].split()]
        span = _described(question, held)
        if span and (names := names_in(found.contents[id_], question)):
            for name in names[:_TRIED]:
                yield id_, name, f"{question[: span[0]]}{name}{question[span[1] :]}"
        elif known := _name(held, question, found.contents[id_]):
            yield id_, known, _replaced(question, held, known)


def _described(question: str, held: list[str]) -> tuple[int, int] | None:
    """Return where a description by a clause stands that has words of a memory: to the last such word."""
    words = [*_WORD.finditer(question)]
    for match in reversed([*_CLAUSE.finditer(question)]):
        verbs = 1 if _DO.search(question[: match.start(1)]) else 0  # the last word is the question's own
        ends = [
            word.end()
            for word in words[: len(words) - verbs]
            if word.start() >= match.start(1) and word[0] in held
        ]
        if ends and ends[-1] > match.end(1):
            return match.start(1), ends[-1]
    return None


def _name(held: list[str], question: str, memory: str) -> str | None:
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
