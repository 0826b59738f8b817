"""What a question asks for, and the words of a memory that may be its answer. The rules are of English."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from mindful.conversation import naming
from mindful.conversation.asked import asks_who_is, has_measure, has_time, nouns_asked, thing_named
from mindful.conversation.spelling import is_mistyped
from mindful.core.pattern import CAPITAL, IGNORECASE, Short, linear

_LONGEST = 300
"""Characters of a message whose opening is read."""
_READ = 2000
"""Characters of a memory that are read. A longer one is taken to answer."""
_OPENING = Short(
    r"^\s*(?:(?:hi|hello|hey|please|sorry|so|and|ok|okay|well|now)\b[ ,.!]*)*"
    r"(?:(?:(?:can|could|would|will) you (?:please )?|please )?"
    r"(?:tell|remind|show|give) me(?! about\b)(?: again)?(?: of)?|"
    r"(?:do|can|could|would) you (?:still )?(?:know|remember|recall)|"
    r"i (?:do not|don't|can't|cannot|no longer) (?:quite |really )?(?:know|remember|recall)(?: any ?more)?|"
    r"i(?:'ve| have)? ?(?:just )?forgot(?:ten)?|i(?: would|'d) (?:like|love|need) to know|"
    r"i (?:want|need|have) to know|i wonder(?: if you know)?|i(?:'m| am) (?:wondering|curious|not sure|unsure)|"
    r"i need|any idea)\b[ ,]*",
    _LONGEST,
    IGNORECASE,
)
_REST = 6
"""Fewest characters that remain of a message without its opening."""
MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
WEEKDAYS = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_TIMES = (
    rf"{MONTHS}|{WEEKDAYS}s?|spring|summer|autumn|fall|winter|today|tomorrow|yesterday|tonight|"
    r"noon|midnight|morning|afternoon|evening|night|week|weekend|month|year|easter|christmas|ago|o'clock|am|pm"
)
NUMBERS = (
    r"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    r"eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|dozen|half|"
    r"once|twice|both|no|none|several|every|fiver|tenner"
)
COLORS = (
    r"red|blue|green|yellow|orange|purple|violet|pink|brown|black|white|gr[ae]y|silver|gold(?:en)?|beige|turquoise|"
    r"cream|ivory|crimson|scarlet|navy|teal|maroon|lilac|magenta|olive|khaki|burgundy|ochre|mint|indigo|bronze|copper"
)
_KINDS = tuple(
    (kind, linear(source, IGNORECASE))
    for kind, source in (
        ("reason", r"^\W*(?:and |so |but )?(?:why|how come)\b"),
        (
            "other",
            r"^\W*(?:and |so |but )?how (?:do|does|did|can|could|should)\b(?![^?]* (?:call|name|spell)\b)",
        ),
        ("color", r"\bcolou?rs?\b"),
        ("name", r"\b(?:who|whom|whose|called|names?)\b"),
        (
            "time",
            r"(?:^|[,.;:!] ?|\b(?:know|remember|me|forgot|until|since|is|by|from|recall|wonder|sure) )"
            r"when\b(?! (?:i|we|you|he|she|they)\b)|\b(?:what|which) (?:time|day|date|year|month)\b|"
            r"\b(?:last day|date|departure time) of\b|\btime (?:is|does|do|of)\b",
        ),
        (
            "number",
            r"\bhow (?:many|much|long|old|far|tall|big|large|often|heavy|high|wide|deep|fast|late|early)\b|"
            r"\bwhat (?:do|does|did) [^?]{1,40} (?:charge|owe|spend)\b|"
            r"\b(?:costs?|pay|earn|number|price|pin|weight|height|age|amount|size|score|total|percentage)\b",
        ),
        (
            "place",
            r"\bwhere\b|\b(?:which|what) (?:city|town|country|place|street|village|room|house|wall|hotel|school)\b|"
            r"\baddress\b",
        ),
    )
)
# What fails at most places comes first.
_SENTENCE = linear(r"(?<=[.!?])(?<!\bMr\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bMrs\.)\s+|\n+")
_WORD = linear(r"[^\W_]+(?:['\u2019.,:_-][^\W_]+)*")
_MANY = ("s", "ren", "people")
_PLAIN = linear(r"[^\W_]+")
_TIME = linear(
    rf"^(?:\d{{1,2}}(?:[:.]\d{{1,2}})?(?:st|nd|rd|th|am|pm|h)?|(?:1[5-9]|20)\d\ds?|\d{{1,4}}(?:[/-]\d{{1,4}}){{1,2}})$|"
    rf"\b(?:{_TIMES})\b",
    IGNORECASE,
)
"""A word that tells a time: other numbers are codes and amounts."""
_HOUR = linear(
    r"\b(?:at|by|before|after|around|until|till|half|past|to) "
    r"(one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b"
    r"(?! (?!(?:and|as|at|because|each|every|from|in|instead|now|on|or|sharp|since|this|today|tomorrow|until|"
    r"till|with)\b)[a-z])",
    IGNORECASE,
)
_REASON = linear(
    r"\b(?:because|since|so|as|due to|thanks to|owing to|therefore|reasons?|too|in order|why|caused?|causes)\b|"
    r"[:;] |, (?:the|my|our|i|we|he|she|it|they)\b",
    IGNORECASE,
)
"""Words that join a deed and its reason."""
_COLOR = linear(rf"\b(?:{COLORS})(?:ish)?\b", IGNORECASE)
_NUMBER = linear(rf"\d|\b(?:{NUMBERS})\b", IGNORECASE)
_PART_OF_NAME = linear(r"\b(?:last|first|family|middle|full) names?\b|\bsurnames?\b", IGNORECASE)
_LOGIN = Short(r"[^\W\d]\w*[\d_]|\d\w*[^\W\d]", 60)
"""A name that is no word, such as one of a user or a server."""
_AMOUNT = linear(
    r"(?<![\d.,])(?:[$\u20ac\u00a3] ?\d[\d.,]*|\d[\d.,]* ?(?:euros?|dollars?|francs?|pounds?|kilos?|kilograms?|"
    r"grams?|kg|km|kilometers?|miles?|meters?|percent|people|children|%|\u20ac))",
    IGNORECASE,
)
"""A number that is no time."""
_DATED = linear(
    rf"\b(?:{MONTHS}) \d{{1,2}}(?:st|nd|rd|th)?\b|\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?(?:{MONTHS})\b|\b\d\d?:\d\d\b",
    IGNORECASE,
)
"""A date or a clock time. Its number is not a count."""
_COUNTS = linear(r"\bhow (?:many|much)\b", IGNORECASE)
_MORE = "more|fewer|less|extra|additional|further"
_ADDED = linear(rf"\b(?:\d+|{NUMBERS}) (?:{_MORE})\b(?! than)|\banother (?:\d+|{NUMBERS})\b", IGNORECASE)
"""A number that is added to another one. It is the count only where that is asked: "How many more are coming?"."""
_ASKS_ADDED = linear(rf"\b(?:{_MORE}|another)\b", IGNORECASE)
_PLACED = linear(
    r"\b(?:in|at|on|under|to|from|behind|near|with|into|inside|above|below|beside|beneath|between|around|by|via|next|"
    r"over|outside|opposite)\b",
    IGNORECASE,
)
_BEING = linear(r"\b(?:is|are|was|were|has|have|had)\b", IGNORECASE)
_AT_A_TIME = linear(
    r"\bby the way\b|\b(?:in|at|on|to|from|by|around|near|over|between) "
    r"(?:the |this |next |last |every |each |early |late |about |\d+ )?"
    rf"(?:\d[\d:.,]*(?!\d)|(?:{_TIMES})\b)(?: ?(?:\d[\d:.,]*|(?:{_TIMES})\b))*",
    IGNORECASE,
)
"""A preposition that is of no place: with a time, or in an idiom."""
_SETTLEMENT = linear(r"\b(?:which|what) (?:city|town|country|village|street)\b", IGNORECASE)
"""Places that have names."""
_WHO = linear(r"\b(?:who|whom|whose)\b", IGNORECASE)
_LOCATED = linear(rf"\b(?:in|at|near|on) ({CAPITAL}\w+)")
"""Names of places, which do not answer who."""
EMPTY = frozenset(
    _WORD.findall(
        "the a an my our his her their its your i we he she it they there this that these those in on at from for to "
        "of by with if when since ever after before because as and but or so yes no not what who me you is are was "
        "were be been now still already just again currently forgot forget know remember tell remind need like wonder"
    )
)
"""Words that answer nothing, and may begin a sentence with a capital."""
_WHICH = linear(r"^\W*(?:which|what) [^\W\d]+ (?:do|does|did|is|was|has|have) ", IGNORECASE)
_ANY_ONE = linear(r"\ban? ([^\W\d_]+)(?= ?(.?))")
_ENDS = ("", ".", "!", ";")
_STEM = 5
"""Letters that two words share if they are forms of one."""
_SHORTEST = 4
"""Letters of the shortest word that has other forms."""


def plain(message: str) -> str:
    """Return a question without the request around it: "Do you know where Olga lives?" as "where Olga lives?"."""
    rest = _OPENING.sub("", message).strip()
    return rest if len(rest) >= _REST else message


@lru_cache(maxsize=4)
def kind_of(question: str) -> str:
    """Return what a question asks for: reason, color, name, time, number, place or other."""
    if asks_who_is(question):
        return "other"
    return next((kind for kind, form in _KINDS if form.search(question)), "other")


def may_answer(question: str, memory: str) -> bool:
    """Return whether a memory has a word that the question lacks, of the kind that is asked for."""
    return answers(question)(memory)


def answers(question: str) -> Callable[[str], bool]:
    """Return may_answer for many memories, for which the question is read once."""
    kind, known = kind_of(question), _words_of(question)
    return lambda memory: len(memory) > _READ or bool(_candidates(question, kind, known, memory))


def candidates(question: str, memory: str) -> list[str]:
    """Return the words of a memory that the question lacks and that are of the kind it asks for."""
    return _candidates(question, kind_of(question), _words_of(question), memory)


@lru_cache(maxsize=4)
def _words_of(question: str) -> _Known:
    words = {word.lower() for word in _WORD.findall(question)}
    return _Known(words | {_base(word) for word in words})


@lru_cache(maxsize=4)
def _bases_of(question: str) -> _Known:
    return _Known(_base(word) for word in _WORD.findall(question))


def _candidates(question: str, kind: str, known: _Known, memory: str) -> list[str]:
    memory = " ".join(_stated(memory))
    if kind == "time":
        memory = _AMOUNT.sub(" ", memory)
    elif kind == "number" and _COUNTS.search(question):
        memory = _DATED.sub(" ", memory)
        memory = memory if _ASKS_ADDED.search(question) else _ADDED.sub(" ", memory)
    found = [word for word in _WORD.findall(memory) if word not in known]
    if kind == "time":
        return _times(question, memory, found)
    if kind == "color":
        return [word for word in found if _COLOR.fullmatch(word)]
    if kind == "number":
        return [word for word in found if _NUMBER.search(word)] if has_measure(question, memory) else []
    found = [word for word in found if _base(word) not in EMPTY]
    if kind == "reason":
        return found if _REASON.search(memory) else []
    names = [word for word in found if word[0].isupper() and not _TIME.fullmatch(word)]
    if kind == "name":
        return _names(question, memory, found, names)
    if kind == "place" and (_is_named(question, memory) or not _places(memory)):
        return names
    if kind == "place" and _places(memory).isdisjoint(found):
        return []
    return [word for word in found if len(word) > 2 or word.isdigit()]


def _names(question: str, memory: str, found: Iterable[str], names: Iterable[str]) -> list[str]:
    given = set(_WORD.findall(naming.name_given(question, memory) or ""))
    if _PART_OF_NAME.search(question):
        return [word for word in found if word in given]
    if not _has_capitals(memory):  # each noun may be a name
        names = [word for word in found if len(word) > 2]
    places = set(_LOCATED.findall(memory)) if _WHO.search(question) else set()
    named = given | set(names) - places
    return [word for word in found if word in named or _LOGIN.search(word)]


def _is_named(question: str, memory: str) -> bool:
    """Return whether the place that is asked for has a name, and the memory writes names with capitals."""
    return _SETTLEMENT.search(question) is not None and _has_capitals(memory)


def _has_capitals(memory: str) -> bool:
    return memory != memory.lower()


def _times(question: str, memory: str, found: Iterable[str]) -> list[str]:
    if not has_time(question, memory):
        return []
    hours = set(_HOUR.findall(memory))
    return [word for word in found if word in hours or _TIME.search(word)]


def _places(memory: str) -> set[str]:
    """Return the words that stand after a preposition of place, up to a verb."""
    after = _PLACED.split(_AT_A_TIME.sub(" ", memory))[1:]
    return {word for part in after for word in _WORD.findall(_BEING.split(part)[0])}


def adds(question: str, memory: str) -> bool:
    """Return whether a memory says anything beyond the question. One that does not is the question, asked before."""
    known = _bases_of(question)
    words = (word for one in _stated(memory) for word in _WORD.findall(one) if _base(word) not in EMPTY)
    return len(memory) > _READ or any(word not in known for word in words)


def asks_for_names(question: str) -> bool:
    """Return whether a question asks for the names of several."""
    thing = thing_named(question)
    return thing is not None and thing.endswith(_MANY)


def lacks_thing(question: str, memory: str) -> bool:
    """Return whether a memory has none of the nouns that the question is about."""
    nouns = nouns_asked(question)
    if not nouns or asks_for_names(question):
        return False  # "children" are a son and a daughter
    known = _nouns_of(memory)
    if not any(noun in known for noun in nouns):
        return True
    # "I saw a doctor." does not tell which one.
    return _WHICH.search(question) is not None and any(
        word in nouns and rest[:1] in _ENDS for word, rest in _ANY_ONE.findall(memory.lower())
    )


def lacks_head(question: str, memory: str) -> bool:
    """Return whether a memory has only words before the noun that a question is about: "ward" of a ward manager."""
    nouns = nouns_asked(question)
    if len(nouns) < 2:
        return False
    known = _nouns_of(memory)
    return nouns[-1] not in known and any(noun in known for noun in nouns[:-1])


def _nouns_of(memory: str) -> _Known:
    return _Known(_base(word) for word in _PLAIN.findall(memory))


def name_in(question: str, memory: str) -> str | None:
    """Return the name that a memory gives to what the question asks the name of."""
    names = (naming.name_given(question, sentence) for sentence in _stated(memory))
    return next(filter(None, names), None)


def excerpt(question: str, memory: str) -> str:
    """Return the sentence of a memory that has most of the question's words, of those that may answer it.

    A memory that only asks has none.
    """
    stated = _stated(memory)
    answering = [sentence for sentence in stated if candidates(question, sentence)]
    known = _Known({_base(word) for word in _WORD.findall(question)} - EMPTY)
    return max(
        answering or stated,
        key=lambda one: sum(word in known for word in _WORD.findall(one)),
        default="",
    )


def sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [sentence for part in _SENTENCE.split(text) if (sentence := part.strip())]


def _stated(memory: str) -> list[str]:
    """Return the sentences of a memory that do not ask."""
    said = sentences(memory[:_READ])
    return [sentence for sentence in said if not (sentence.endswith("?") or is_mistyped(sentence))]


def telling(question: str, memory: str) -> list[str]:
    """Return the words by which an answer shows that it rests on a memory: names and numbers, if it has any."""
    found = candidates(question, memory)
    return [word for word in found if word[0].isupper() or _NUMBER.search(word)] or found


def grounds(question: str, memory: str) -> list[str]:
    """Return the words of which a right answer has one: of a place, those after the first preposition."""
    without = _AT_A_TIME.sub(" ", memory)
    if kind_of(question) == "place" and (placed := _PLACED.search(without)):
        after = set(_WORD.findall(without[placed.end() :]))
        if found := [word for word in candidates(question, memory) if word in after]:
            return found
    return telling(question, memory)


def _base(word: str) -> str:
    return word.lower().split("'")[0].split("\u2019")[0]


class _Known:
    """Words in lower case. Forms of them are in it too: words that begin alike, or one of which begins the other."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = frozenset(words)
        long = [word for word in self._words if len(word) >= _SHORTEST]
        self._stems = {word[:_STEM] for word in long}
        self._short_stems = {word[:_SHORTEST] for word in long}

    def __contains__(self, word: str) -> bool:
        base = _base(word)
        if word.lower() in self._words or base in self._words:
            return True
        if len(base) == _SHORTEST:
            return base in self._short_stems
        return len(base) > _SHORTEST and (base[:_STEM] in self._stems or base[:_SHORTEST] in self._stems)
