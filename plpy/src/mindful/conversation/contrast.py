"""Whether a memory tells of another one of the things that a question asks for: of the away kit, not the home kit.

Similarity does not tell them apart: words that exclude each other occur in the same texts. The rules are of English.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mindful.core.pattern import IGNORECASE, linear

_READ = 2000
"""Characters of a memory that are read."""
_OPPOSITES = tuple(
    frozenset(words.split())
    for words in (
        "first second third fourth fifth sixth last final",
        "day night",
        "morning afternoon evening night",
        "home away",
        "indoor outdoor",
        "inside outside",
        "front back rear",
        "left right",
        "upper lower",
        "top bottom",
        "internal external",
        "domestic foreign international",
        "male female",
        "men women boys girls",
        "mother father",
        "mum dad",
        "brother sister",
        "son daughter",
        "uncle aunt",
        "nephew niece",
        "grandmother grandfather",
        "north south east west",
        "spring summer autumn winter",
        "monday tuesday wednesday thursday friday saturday sunday",
        "january february march april june july august september october november december",
        "breakfast lunch dinner",
        "arrival departure",
        "outward outbound return",
        "opening closing",
        "incoming outgoing",
        "private public",
        "personal business",
        "junior senior",
        "primary secondary",
        "large small medium",
        "big small",
        "old new",
        "cold hot warm",
        "gross net",
        "minimum maximum",
        "gas electricity water",
    )
)
"""Words that exclude each other."""
_WORD = linear(r"[^\W_]+")
_BETWEEN = linear(r"[.!?;:,()]|\b(?:and|or|but)\b")
"""What separates a word from the one that it describes."""
_PHRASE = linear(
    r"\b(?:the|an?|my|our|his|her|their|your|its|this|that|each|per|[^\W\d_]+['\u2019]s) ((?:[^\W_]+[ -]){1,4}[^\W_]+)",
    IGNORECASE,
)
"""A determiner, and words of which the last may be a noun."""
_VERB = linear(r"\b(?:do|does|did|will|would|can|could|should) [^?]* ([^\W_]+)\W*$", IGNORECASE)
"""The verb at the end of a question."""
_FUNCTION = frozenset(
    _WORD.findall(
        "a about all also am an and any are as at be been but by can could did do does for from get gets got "
        "had has have he her him his how i if in into is it its just many me much my not now of on or our "
        "ours own per she should so some still than that the their them then there these they this those to "
        "up us was we were what when where which who whom whose why will with would you your s t again "
        "currently usually really actually"
    )
)
"""Words that describe nothing."""
_LENGTH = 4
"""Letters by which two forms of a word begin alike."""


def contrasts(question: str, memory: str) -> bool:
    """Return whether a memory has a word in the place of one of the question's that excludes it.

    It is one of opposites, or it describes the same thing: "away kit" for "our home kit".
    """
    memory = memory[:_READ]
    asked, told = _WORD.findall(question.lower()), _WORD.findall(memory.lower())
    if _is_opposite(asked, told):
        return True
    return any(
        not _in(describing, told) and any(not _in(other, asked) for other in _before(described, memory))
        for describing, described in _described(question)
    )


def _is_opposite(asked: Sequence[str], told: Sequence[str]) -> bool:
    for words in _OPPOSITES:
        wanted, given = ({_singular(word) for word in text} & words for text in (asked, told))
        if wanted and given and wanted.isdisjoint(given):
            return True
    return False


def _described(question: str) -> Iterator[tuple[str, str]]:
    """Yield each word between a determiner and a noun, with that noun: "home" and "kit" of "our home kit"."""
    verb = _VERB.search(question)
    for phrase in _PHRASE.findall(question[: verb.start(1)] if verb else question):
        words = [word for word in _WORD.findall(phrase.lower()) if word not in _FUNCTION]
        yield from pairwise(words)


def _before(word: str, memory: str) -> Iterator[str]:
    """Yield the words that stand directly before a word, or a form of it, in a memory. Names describe nothing."""
    for part in _BETWEEN.split(memory):
        words = _WORD.findall(part)
        for at, (first, second) in enumerate(pairwise(words)):
            is_name = at > 0 and first[0].isupper()
            if _alike(second.lower(), word) and not (
                is_name or first.isdigit() or first.lower() in _FUNCTION
            ):
                yield first.lower()


def _in(word: str, words: Sequence[str]) -> bool:
    return any(_alike(word, other) for other in words)


def _alike(one: str, other: str) -> bool:
    """Return whether two words are equal, or forms of one word."""
    if one == other:
        return True
    return min(len(one), len(other)) >= _LENGTH and (one.startswith(other[:-1]) or other.startswith(one[:-1]))


def _singular(word: str) -> str:
    return word.removesuffix("s") if len(word) > _LENGTH - 1 else word
