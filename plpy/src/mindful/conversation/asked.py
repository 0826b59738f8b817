"""The noun that a question is about, and the measure of a number it asks for. The rules are of English.

"What is the name of Henning's wife?" is about a wife, "How deep is the keel?" about a keel. A memory that lacks the
noun, in each of its forms, is most often about another matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from mindful.core.pattern import CAPITAL, IGNORECASE, Linear, Short, linear

_LONGEST = 300
"""Characters of a question that is read."""
_BE = r"(?:'s| is| are| was| were| will be)"
_NOUN = r"(?P<noun>[^?!;]{1,100}?)"
_NAMING = tuple(
    Short(source, _LONGEST, IGNORECASE)
    for source in (
        rf"\bnames? of {_NOUN}(?: again)?\W*$",
        rf"\b(?:what|how){_BE} {_NOUN} (?:called|named)\W*$",
        rf"\bwhat (?:do|does|did) (?:we|i|they|he|she|you) call {_NOUN}\W*$",
        rf"\bwhat{_BE} {_NOUN}['\u2019]s? (?:first |last |full )?names?\W*$",
        rf"\bwhat {_NOUN} (?:is|are|was|were) (?:called|named)\W*$",
        rf"\bwho{_BE} {_NOUN}\W*$",
        rf"\b{_NOUN}['\u2019]s? names?\W*$",
    )
)
_OTHERS = tuple(
    Short(source, _LONGEST, IGNORECASE)
    for source in (
        rf"\b(?:what|where|when){_BE} {_NOUN}\W*$",
        rf"\bhow \w+{_BE} {_NOUN}\W*$",
        rf"\bhow many {_NOUN} (?:is|are|was|were|do|does|did|have|has|can|could|will|would|should)\b",
        r"\bhow much (?:do|does|did|will|would) "
        r"(?P<noun>(?:the|a|an|my|our|his|her|their|\w+['\u2019]s) [^?]{1,80}?) cost\b",
        r"\b(?:what|how much) (?:do|does|did|will|would) (?P<noun>[^?]{1,80}?) (?:cost|weigh|measure|earn)\W*$",
        r"\bwho \w+ (?:the|my|our|his|her|their) (?P<noun>[^?!;]{1,60}?)\W*$",
        r"\b(?:which|what) (?P<noun>[^\W\d]+(?: [^\W\d]+)?) (?:do|does|did|is|are|was|were|has|have|had|will) \w",
        rf"\b(?:which|what) \w+{_BE} {_NOUN}\W*$",
        r"\b(?:when|where|how often|how long) (?:do|does|did|will|would|has|have) "
        r"(?P<noun>(?:the|a|an|my|our|his|her|their) [^?!;]{1,60}?) \w+\W*$",
    )
)
_COUNT = (
    r"(?:\d|\b(?:an?|half|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|"
    r"hundred)) ?"
)
_SPAN = r"(?:seconds?|minutes?|hours?|days?|nights?|weeks?|months?|years?)\b|\bh\b"
_LENGTH = r"(?:mm|cm|m|km|ft|(?:kilo|centi|milli)?met(?:er|re)s?|feet|foot|inch(?:es)?|miles?|yards?)\b"
_MONEY = (
    r"[$\u20ac\u00a3\u00a5]|\b(?:euros?|dollars?|francs?|pounds?|kron(?:er|or|a)|crowns?|cents?|pence|yen|yuan|"
    r"pesos?|rupees?|rubles?|zlotys?|lira|dirhams?|shekels?|bucks|eur|usd|gbp|chf|free|costs?|pric(?:e|ed|es)|pay|"
    r"pays|paid|rent|rents|fees?|charges?|budget|sells?|sold|worth|owes?|salary|earns?|wages?|bill|discount|quid|fivers?|"
    r"tenners?|grand|deposit|quoted?)\b|"
    # An amount without its currency: "720 a month", "235 for twelve weeks". Years, times and room numbers do not count.
    r"(?<![\w.:])(?<!\bat )(?<!\bby )(?<!\bfrom )(?<!\buntil )(?<!\bnumber )(?<!\broom )(?<!\bflat )(?!(?:19|20)\d\d\b)"
    r"\d{2,}(?:[.,]\d+)*(?= ?(?:an?\b|per\b|plus\b|/|for\b|each\b|in all\b|altogether\b|now\b|[.,;)]|$))"
)
_MEASURES = tuple(
    (linear(question, IGNORECASE), linear(memory, IGNORECASE))
    for question, memory in (
        (
            r"\bhow much\b[^?]{0,80}\b(?:costs?|pay|paid|owe|earn|charge|spend|spent|rent|budget|worth|fees?|price)\b|"
            r"\b(?:what|which)\b[^?]{0,80}\b(?:costs?|price|fee|budget|salary)\b",
            _MONEY,
        ),
        (
            r"\bhow much(?: is| are| was| were|'s) (?:the|an?|my|our|one|each|it)\b",
            rf"{_MONEY}|%|\bpercent\b|\d(?! ?(?:nights?|days?|weeks?|hours?|minutes?|people|[ap]m|o'clock|[:\d]))",
        ),
        (
            r"\bhow old\b",
            r"\b(?:years?|months?|weeks?|days?)[- ]old\b|\b(?:is|are|was) \d+\b|"
            r"\b(?:aged?|turn(?:s|ed|ing)?|born|birthday|since|from|built|founded|year)\b",
        ),
        (
            r"\bhow (?:tall|high|deep|wide)\b",
            rf"{_COUNT}{_LENGTH}|\b(?:tall|high|deep|wide|height|depth|width)\b",
        ),
        (
            r"\bhow (?:heavy\b|much\b[^?]{0,80}\bweigh)",
            r"\b(?:kilos?|kg|kilograms?|grams?|g|pounds?|lbs?|tons?|tonnes?|ounces?|stone)\b|\bweigh",
        ),
        (r"\bhow far\b", rf"{_COUNT}(?:{_LENGTH}|{_SPAN})"),
        (
            r"\bhow long\b",
            rf"{_COUNT}(?:{_LENGTH}|{_SPAN})|\b(?:long|since|until|till|from|length|lasts?|all)\b",
        ),
        (
            r"\bhow often\b",
            r"\b(?:every|each|once|twice|times|daily|weekly|monthly|yearly|never|always|per|an?)\b|days\b",
        ),
    )
)
"""Questions for a measure, and what a memory has that tells it."""
_TIMES = tuple(
    (linear(question, IGNORECASE), linear(memory, IGNORECASE))
    for question, memory in (
        (
            r"\b(?:which|what) year\b",
            r"\b(?:1[5-9]|20)\d\d\b|['\u2019]\d\d\b|\byears? ago\b|\b(?:last|this|next) year\b|\b(?:year|grade) \d",
        ),
        (
            r"\bwhat time\b",
            r"\d[:.]\d\d|\b\d{1,2} ?(?:am|pm|h)\b|o'clock|\b\d{1,2} ?[-\u2013] ?\d{1,2}\b|"
            r"\b(?:noon|midnight|morning|afternoon|evening|night|half|quarter|sharp)\b|"
            r"\b(?:at|by|before|after|around|until|till|past|to|from|for|between|is|are|about) "
            r"(?:\d{1,2}|one|two|three|four|five|six|"
            r"seven|eight|nine|ten|eleven|twelve)\b",
        ),
    )
)
"""Questions for a certain kind of time, and what a memory has that tells it."""
_WORD = linear(r"[^\W_]+")
_ENDS = linear(
    r",|\b(?:of|in|on|at|from|for|with|who|whom|that|which|to|near|beside|by|about|until|since|like|again|now|and|or|"
    r"today|tonight|tomorrow|here|there|please|exactly|right|then|yet|still)\b",
    IGNORECASE,
)
_OWNER = linear(r"['\u2019]s? ")
_DETERMINERS = frozenset(
    _WORD.findall(
        "the a an my our his her their its your this that these those i we he she they it you next last new old current"
    )
)
_FAVOURITE = linear(r"\bfavou?rites?\b", IGNORECASE)
_WHO_IS = Short(
    rf"\b[Ww]ho(?:'s|\u2019s| is| was| are| were) {CAPITAL}(?![^?]*\b[a-z]+ing\b)[^?'\u2019]*\W*$", _LONGEST
)
_KIND_ALONE = frozenset(
    _WORD.findall(
        "city town country place address street number amount date day time year month price cost job profession "
        "occupation language color colour age size height weight reason plan plans thing things kind type brand make "
        "kids children people open closed due ready free available over"
    )
)
"""Nouns that name the kind of an answer, which a memory tells without the noun, and adjectives in their place."""


def asks_who_is(question: str) -> bool:
    """Return whether a question asks who somebody is whom it names: "Who is Mr Okafor?"."""
    return _WHO_IS.search(question) is not None


# Called for each memory with the same question.
@lru_cache(maxsize=4)
def thing_named(question: str) -> str | None:
    """Return the noun of what a question asks the name of: "cat" of "What is the name of my cat?"."""
    if asks_who_is(question):
        return None
    return next(iter(_nouns(question, _NAMING)[-1:]), None)


@lru_cache(maxsize=4)
def nouns_asked(question: str) -> Sequence[str]:
    """Return the nouns that a question is about, if its form tells: those of "choir rehearsal" in "When is ...?"."""
    if _FAVOURITE.search(question):
        return ()
    found = (_nouns(question, (form,)) for form in (*_NAMING, *_OTHERS))
    return next(filter(None, ([noun for noun in nouns if noun not in _KIND_ALONE] for nouns in found)), ())


def has_measure(question: str, memory: str) -> bool:
    """Return whether a memory has the measure that a question asks for, such as money or an age."""
    return all(told.search(memory) for told in _wanted(_MEASURES, question))


def has_time(question: str, memory: str) -> bool:
    """Return whether a memory has the kind of time that a question asks for: a year, or a time of day."""
    return all(told.search(memory) for told in _wanted(_TIMES, question))


@lru_cache(maxsize=8)
def _wanted(forms: tuple[tuple[Linear, Linear], ...], question: str) -> tuple[Linear, ...]:
    """Return what a memory must have to answer a question of these forms."""
    return tuple(told for asked, told in forms if asked.search(question))


def _nouns(question: str, forms: tuple[Short, ...]) -> list[str]:
    found = next((match for form in forms if (match := form.search(question.strip()))), None)
    if found is None:
        return []
    owned = _OWNER.split(_ENDS.split(found["noun"])[0])[-1]
    return [word.lower() for word in _WORD.findall(owned) if word.lower() not in _DETERMINERS]
