"""Whether a memory tells of another one of the things that a question asks for: of the away kit, not the home kit.

Similarity does not tell them apart: words that exclude each other occur in the same texts. The rules are of English.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

from mindful.core.pattern import IGNORECASE, linear

_READ = 2000
"""Characters of a memory that are read."""
_LONGEST = 300
"""Characters of a question that is read."""
_TELLING = tuple(
    frozenset(words.split())
    for words in (
        "day night",
        "north south east west",
        "monday tuesday wednesday thursday friday saturday sunday",
        "january february march april june july august september october november december",
    )
)
"""Words that exclude each other, before the word that they tell of or after it."""
_OPPOSITES = _TELLING + tuple(
    frozenset(words.split())
    for words in (
        "first second third fourth fifth sixth",
        "morning afternoon evening",
        "home away",
        "indoor outdoor",
        "inside outside",
        "front back",
        "left right",
        "upper lower",
        "top bottom",
        "internal external",
        "domestic foreign",
        "male female",
        "men women boy girl",
        "mother father",
        "mum dad",
        "brother sister",
        "son daughter",
        "uncle aunt",
        "nephew niece",
        "grandmother grandfather",
        "spring summer autumn winter",
        "breakfast lunch dinner",
        "arrival departure",
        "outbound return",
        "opening closing",
        "incoming outgoing",
        "private public",
        "junior senior",
        "primary secondary",
        "gross net",
        "minimum maximum",
        "gas electricity water",
    )
)
"""Words that exclude each other, before the word that they tell of."""
_SET_OF = {word: words for words in _OPPOSITES for word in words}
_Places = Mapping[frozenset[str], Sequence[tuple[str, str, str]]]
"""By set of opposites: its words in a text, each with the words before and after it."""
_WORD = linear(r"[^\W_]+")
_BETWEEN = linear(r"[.!?;:,()]|\b(?:and|or|but)\b")
"""What separates a word from the one that it describes."""
_TO = frozenset({"to", "until", "till", "through"})
_PHRASE = linear(
    r"(\b(?:do|does|did|will|would|can|could|should|has|have|had) )?"
    r"\b(?:the|an?|my|our|his|her|their|your|its|this|that|[^\W\d_]+['\u2019]s) ([^.!?;:,()]*)",
    IGNORECASE,
)
"""A determiner and what follows it. After an auxiliary, the last word of the phrase is the verb."""
_DETERMINERS = frozenset(_WORD.findall("a an the my our his her their your its this that s"))
_FUNCTION = frozenset(
    _WORD.findall(
        "a about all also am an and any are as at be been but by can could did do does for from get gets got had has "
        "have he her him his how i if in into is it its just many me much my not now of on or our ours own per she "
        "should so some still than that the their them then there these they this those to up us was we were what "
        "when where which who whom whose why will with would you your s t again here today please"
    )
)
_PLAIN = frozenset(
    _WORD.findall(
        "new next last old current previous weekly monthly daily yearly best usual regular favorite favourite main "
        "good great nice big small little other same whole full phone mobile telephone cell always "
        "usually really actually"
    )
)
"""Words that tell nothing of which one it is."""
_NO_DESCRIPTION = _FUNCTION | _PLAIN
_LENGTH = 4
"""Letters of the shortest word that has other forms."""


def contrasts(question: str, memory: str) -> bool:
    """Return whether a memory has a word in the place of one of the question's that excludes it.

    It is one of opposites, or it describes the same thing: "away kit" for "our home kit".
    """
    if _is_opposite(_places(question[:_LONGEST]), memory):
        return True
    described = _described(question)
    if not described:
        return False
    asked, told = _words(question[:_LONGEST]), _words(memory[:_READ])
    things = list(_described_things(memory))
    return any(
        not _in(describing, told)
        and any(not _in(other, asked) for other, thing in things if _alike(thing, noun))
        for describing, noun in described
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _is_opposite(wanted: _Places, memory: str) -> bool:
    """Return whether a memory has other ones of some words, beside the same word as the question."""
    given = _places(memory[:_READ]) if wanted else {}
    return any(
        bool(after and other_after and _alike(after, other_after))
        or (words in _TELLING and bool(before and other_before) and _alike(before, other_before))
        for words in wanted.keys() & given.keys()
        if not {word for word, _, _ in wanted[words]} & {word for word, _, _ in given[words]}
        for _, before, after in wanted[words]
        for _, other_before, other_after in given[words]
    )


def _places(text: str) -> _Places:
    """Return such words of a text, with the last word before each that is no function word, and the next word.

    A range has all of its words: "Monday to Friday". Sets with a range in the text are left out.
    """
    read = _words(text)
    found: defaultdict[frozenset[str], list[tuple[str, str, str]]] = defaultdict(list)
    ranges = set()
    for at, word in enumerate(read):
        base = _singular(word)
        if words := _SET_OF.get(base):
            near = (*read[max(at - 1, 0) : at], *read[at + 1 : at + 2])
            if any(one in _TO or _singular(one) in words for one in near):
                ranges.add(words)
            before = next((one for one in reversed(read[:at]) if one not in _FUNCTION), "")
            after = next((one for one in read[at + 1 : at + 2] if one not in _FUNCTION), "")
            found[words].append((base, before, after))
    return {words: places for words, places in found.items() if words not in ranges}


@lru_cache(maxsize=4)
def _described(question: str) -> Sequence[tuple[str, str]]:
    """Return each word between a determiner and a noun, with that noun: "home" and "kit" of "our home kit"."""
    pairs: list[tuple[str, str]] = []
    for auxiliary, rest in _PHRASE.findall(question[:_LONGEST]):
        words = []
        for word in _words(rest):
            if word in _FUNCTION:
                break
            words.append(word)
        pairs += pairwise(words[:-1] if auxiliary else words)
    return [pair for pair in pairs if pair[0] not in _PLAIN]


def _described_things(memory: str) -> Iterator[tuple[str, str]]:
    """Yield words after a determiner or a beginning, with the word that they describe. Names describe nothing."""
    for part in _BETWEEN.split(memory[:_READ]):
        words = _WORD.findall(part)
        for at, (first, second) in enumerate(pairwise(words)):
            describes = first.lower() not in _NO_DESCRIPTION and not first.isdigit()
            if describes and (at == 0 or (words[at - 1].lower() in _DETERMINERS and not first[0].isupper())):
                yield first.lower(), second.lower()


def _in(word: str, words: Sequence[str]) -> bool:
    return any(_alike(word, other) for other in words)


def _alike(one: str, other: str) -> bool:
    """Return whether two words are equal, or forms of one word."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return len(short) >= _LENGTH and long.startswith(short)


def _singular(word: str) -> str:
    return word.removesuffix("s") if len(word) >= _LENGTH else word
