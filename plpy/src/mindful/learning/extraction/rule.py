"""Facts by rules, without a model: English statements about the speaker, the family and pets.

The rules prefer precision to recall. A missed fact is still in its message; a wrong fact would be believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from mindful.core.pattern import CAPITAL, IGNORECASE, Found, Short, linear
from mindful.learning.extraction import Statement
from mindful.learning.extraction.date import dated
from mindful.learning.extraction.sentence import clauses, plain, sentences
from mindful.learning.extraction.vocabulary import (
    ACTIVITIES,
    ADVERBS,
    EVENTS,
    GAINS,
    IDLE,
    KIN,
    NUMBERS,
    OCCUPATIONS,
    OWNED,
    PETS,
    PLACE,
    STOPS,
    VAGUE,
)

_LONGEST = 1000
"""Maximum of characters of a sentence. Longer ones contain no fact that stands by itself."""
_LONGEST_OBJECT = 200
_MOST = 500
"""Maximum of facts of a text. Later parts of a long paste are still in the message."""


class Rule(NamedTuple):
    """A pattern after the subject, in the first and the third person, and the sentence of the fact."""

    relation: str
    pattern: str
    content: str
    confidence: float = 0.8


_ENDS = r"(?=$| [a-z])"
_O = r"(?P<o>.+)"
_VERB = linear(r"(?<!P)<(\w+)>")
_IRREGULAR = {"am": ("(?:am|'m)", "(?:is|'s)"), "have": ("have", "has"), "do": ("do", "does")}

RULES = (
    Rule("name", rf"<am> (?:called|named) (?P<o>{PLACE}){_ENDS}", "{s} is called {o}.", 0.9),
    Rule("age", r"<am> (?P<o>\d{1,3})(?: years old)?$", "{s} is {o} years old.", 0.9),
    Rule("birthday", r"was born (?P<o>(?:in|on) .*\d.*)", "{s} was born {o}.", 0.9),
    Rule("lives_in", rf"(?:<live>|<am> (?:living|based)) in (?P<o>{PLACE}){_ENDS}", "{s} lives in {o}.", 0.9),
    Rule("lives_in", rf"(?:have |has |'ve |'s )?moved to (?P<o>{PLACE}){_ENDS}", "{s} lives in {o}."),
    Rule(
        "comes_from",
        rf"(?:<am>|<come>|was)(?: born and raised in| born in| from) (?P<o>{PLACE}){_ENDS}",
        "{s} comes from {o}.",
        0.9,
    ),
    Rule("comes_from", rf"grew up in (?P<o>{PLACE}){_ENDS}", "{s} grew up in {o}.", 0.9),
    Rule("works_at", rf"(?:<work>|<am> working) (?:at|for) (?P<o>{PLACE}){_ENDS}", "{s} works at {o}.", 0.9),
    Rule("works_as", r"(?:<work>|<am> working) as (?P<o>an? .+)", "{s} works as {o}.", 0.9),
    Rule("works_as", rf"<am> (?P<o>an? (?:[a-z-]+ ){{0,2}}(?:{OCCUPATIONS}))$", "{s} is {o}."),
    Rule("works_as", r"(?:have |'ve )?got a (?:new )?job as (?P<o>an? .+)", "{s} works as {o}."),
    Rule(
        "studies",
        r"(?:<study>|<am> (?:studying|majoring in)|majored in) (?P<o>(?!for\b|hard\b).+)",
        "{s} studies {o}.",
    ),
    Rule("marital_status", r"<am> (?P<o>married|single|divorced|engaged|widowed)$", "{s} is {o}."),
    Rule("marital_status", r"got (?P<o>married|divorced|engaged)$", "{s} is {o}."),
    Rule("likes", rf"(?:<love>|<adore>|<enjoy>|<like>)(?: also)? {_O}", "{s} likes {o}."),
    Rule(
        "likes",
        r"<am> (?:a (?:big |huge |massive )?fan of|into|passionate about|fond of|obsessed with) (?P<o>.+)",
        "{s} likes {o}.",
        0.85,
    ),
    Rule(
        "dislikes",
        rf"(?:<hate>|<dislike>|can't stand|<do>(?:n't| not) (?:really )?like) {_O}",
        "{s} dislikes {o}.",
    ),
    Rule("prefers", rf"<prefer> {_O}", "{s} prefers {o}."),
    Rule("allergic_to", rf"<am> allergic to {_O}", "{s} is allergic to {o}.", 0.95),
    Rule("afraid_of", rf"<am> (?:afraid|scared|terrified) of {_O}", "{s} is afraid of {o}."),
    Rule("speaks", rf"<speak> (?P<o>{CAPITAL}\w+)", "{s} speaks {o}.", 0.9),
    Rule(
        "has",
        rf"(?:<have>(?: got)?|'ve got) (?P<o>(?:an?|{NUMBERS}) (?:[a-z]+ ){{0,2}}(?:{KIN}|{PETS}|{OWNED})(?: (?:named|called) {PLACE})?)$",
        "{s} has {o}.",
        0.9,
    ),
    Rule(
        "plans",
        r"<am> (?:planning (?:to|on)|hoping to|going to|gonna|thinking (?:of|about)) (?P<o>.+)",
        "{s} plans {to}{o}.",
    ),
    Rule("plans", r"<plan> (?:to|on) (?P<o>.+)", "{s} plans {to}{o}."),
    Rule("plans", r"(?:wanna|<want> to) (?P<o>.+)", "{s} wants to {o}.", 0.75),
    Rule("event", rf"(?:have |'ve )?(?P<v>{EVENTS}) {_O}", "{s} {v} {o}."),
    Rule(
        "event",
        rf"(?:have |'ve )?(?:got|received) (?P<o>(?:an?|my) (?:[a-z]+ ){{0,2}}(?:{PETS}|{OWNED}|{GAINS}))\b",
        "{s} got {o}.",
    ),
    Rule("event", r"(?P<v>made|took|had) (?P<o>(?:an?|some|my|our) .+)", "{s} {v} {o}.", 0.75),
    Rule("plans", r"decided to (?P<o>.+)", "{s} decided to {o}."),
    Rule("plans", r"<am> planning (?P<o>(?:an?|my|our) .+)", "{s} plans {o}."),
    Rule("does", rf"(?:have|'ve|has|'s) been (?P<v>(?!{IDLE})[a-z]+ing) {_O}", "{s} has been {v} {o}."),
    Rule("does", rf"<am> (?:currently )?(?P<v>{ACTIVITIES}) {_O}", "{s} is {v} {o}."),
)


def _compiled(rule: Rule, person: int) -> tuple[Rule, Short]:
    def verb(match: Found) -> str:
        base = match[1]
        return _IRREGULAR[base][person] if base in _IRREGULAR else (base if person == 0 else _third(base))

    pattern = _VERB.sub(verb, rule.pattern)
    return rule, Short(rf"\A(?:\s*(?:{ADVERBS})\b)*\s*{pattern}", _LONGEST)


def _third(verb: str) -> str:
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("s", "sh", "ch")) else f"{verb}s"


_FIRST, _OTHER = ([_compiled(rule, person) for rule in RULES] for person in (0, 1))
_TOGETHER = [(rule, pattern) for rule, pattern in _FIRST if rule.relation == "event"]
_I = Short(
    rf"(?:(?:(?:Last|Next|This|This past) \w+|Yesterday|Tomorrow|Last night|Today|(?:A|A few|A couple of|{CAPITAL}\w+) "
    rf"(?:days?|weeks?|months?|years?) ago|(?:On|In) (?:{CAPITAL}\w+|\d[\w ]{{0,15}})),? )?(?P<we>I|We|we)(?=[ '])",
    _LONGEST,
)
_MINE = Short(
    rf"(?:M|m)y (?P<k>(?:[a-z]+ )?(?:{KIN}|{PETS}))(?:,? (?P<n>{CAPITAL}[^\W\d_]+),?)?(?= |'s (?:a|an|called|named|from|\d))",
    _LONGEST,
)
_NAME = Short(rf"(?P<s>{PLACE})(?=[ ']|$)", _LONGEST)
_NAMED = Short(
    rf"(?:M|m)y (?P<k>(?:[a-z]+ )?(?:{KIN}|{PETS}))(?:'s name)? is (?:called |named )?(?P<o>{CAPITAL}[^\W\d_]+)$",
    _LONGEST,
)
_MY_NAME = Short(
    rf"(?:M|m)y name(?: i|')s (?P<o>{PLACE})$|(?:P|p)lease call me (?P<p>{PLACE})$",
    _LONGEST,
)
_FAVORITE = Short(
    r"(?:M|m)y (?:all-time )?favou?rite (?P<k>(?!thing|part|one|memory|moment)[a-z]+(?: [a-z]+)?)(?: of all time)? (?:is|was|has to be|would be) (?P<o>.+)",
    _LONGEST,
)
_INNER = linear(rf"(?<=[a-z\u00df-\u024f,] ){CAPITAL}[\w'&.-]{{0,50}}")
_WORD_END = linear(r"(?<=\w)(?!\w)|$")
_STATIVE = (
    "name",
    "age",
    "birthday",
    "lives_in",
    "comes_from",
    "works_at",
    "works_as",
    "likes",
    "dislikes",
    "allergic_to",
    "speaks",
    "has",
)


def statements(
    text: str, speaker: str | None, written_at: datetime | None, check: Callable[[], None] = lambda: None
) -> Iterator[Statement]:
    """Yield the statements of a text, at most 500. The speaker is whom "I" means, None for a document."""
    return islice(_statements(text, speaker, written_at, check), _MOST)


def _statements(
    text: str, speaker: str | None, written_at: datetime | None, check: Callable[[], None]
) -> Iterator[Statement]:
    simple = plain(text)
    names = _Names(simple)
    for first, last in sentences(simple, check):
        if last - first > _LONGEST or simple[first:last].rstrip().endswith("?"):
            continue
        check()
        for start, end in clauses(simple, first, last):
            fact = _of_clause(simple[start:end].rstrip(" .!\n"), names, speaker, written_at)
            if fact is not None:
                relation, subject, obj, content, confidence, when = fact
                quote = text[start:end].rstrip(" .!,;:")
                cause = simple[first:start].rstrip().lower().endswith("because")
                yield Statement(subject, relation, obj, content, quote, confidence, when, cause)


Fact = tuple[str, str, str, str, float, datetime | None]


class _Names:
    """Capitalized words inside the sentences of a text, collected at the first look-up."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __contains__(self, name: str) -> bool:
        return name in self._known

    @cached_property
    def _known(self) -> set[str]:
        words = _INNER.findall(self._text)
        return {word[: end.start()] for word in words for end in _WORD_END.finditer(word)}


def _of_clause(clause: str, names: _Names, speaker: str | None, written_at: datetime | None) -> Fact | None:
    if STOPS.search(clause):
        return None
    if speaker is not None:
        if fact := _of_mine(clause, speaker):
            return fact
        if head := _I.match(clause):
            if head["we"] != "I":
                return _by_rules(
                    _TOGETHER, f"{speaker} and others", clause[head.end() :], dated(clause, written_at)
                )
            return _by_rules(_FIRST, speaker, clause[head.end() :], dated(clause, written_at))
        if head := _MINE.match(clause):
            name = f" {head['n']}" if head["n"] else ""
            return _by_rules(
                _OTHER, f"{speaker}'s {head['k']}{name}", clause[head.end() :], dated(clause, written_at)
            )
    return _of_named(names, clause, written_at)


def _of_mine(clause: str, speaker: str) -> Fact | None:
    """Return a name or a favorite from a clause that begins with "my"."""
    if match := _MY_NAME.match(clause):
        name = match["o"] or match["p"]
        return "name", speaker, name, f"{speaker} is called {name}.", 0.95, None
    if match := _NAMED.match(clause):
        subject = f"{speaker}'s {match['k']}"
        return "name", subject, match["o"], f"{subject} is called {match['o']}.", 0.9, None
    if match := _FAVORITE.match(clause):
        thing = _object(match["o"])
        if thing is not None:
            kind = match["k"].replace(" ", "_")
            return (
                f"favorite_{kind}",
                speaker,
                thing,
                f"{speaker}'s favorite {match['k']} is {thing}.",
                0.9,
                None,
            )
    return None


def _of_named(names: _Names, clause: str, written_at: datetime | None) -> Fact | None:
    """Return a fact about a named subject. A single word must also be capitalized inside a sentence."""
    head = _NAME.match(clause)
    if head is None or (" " not in head["s"] and head["s"] not in names):
        return None
    rules = [(rule, pattern) for rule, pattern in _OTHER if rule.relation in _STATIVE]
    return _by_rules(rules, head["s"], clause[head.end() :], dated(clause, written_at))


def _by_rules(rules: list[tuple[Rule, Short]], subject: str, rest: str, when: datetime | None) -> Fact | None:
    for rule, pattern in rules:
        for text in (rest, _cut(rest)):  # patterns that end in $ match only the cut text
            if (match := pattern.match(text)) is None:
                continue
            thing = _object(match["o"])
            if thing is None or (rule.relation == "plans" and _IDLE.match(thing)):
                return None
            parts = match.groupdict()
            to = "" if _GERUND.match(thing) else "to "
            content = rule.content.format(s=subject, o=thing, v=parts.get("v"), to=to)
            if when is not None and rule.relation in ("event", "plans"):
                content = f"{content[:-1]} ({when.date().isoformat()})."
            return rule.relation, subject, thing, content, rule.confidence, when
    return None


_END = linear(
    r"[,;:!?()\n]|\.(?=\s|$)|\.\.|\s[-\u2013\u2014]|\u2014"
    r"|\s(?:because|'?cause (?:it|I|they|we|of)|since (?:it|they|he|she|I)|(?-i:so)|which|who|although|though|but|while|when|whenever|if|unless|cuz|"
    r"whether|where|as (?:well|it|they|I|a way)|and (?:something|someone|everyone|all|also|unsurprisingly|I|we|it|they|he|she|you|that|this|the|then|my|am|was|is|it's|I'm|"
    r"can|will|would|just|had|have|got|[a-z]+ed)|that (?:I|we|it|they|he|she|you)|it's|I|we|they|it (?:was|is)|you|"
    r"ever since|as usual|even)\b.*",
    IGNORECASE,
)
_TAIL = linear(
    r"\s(?:so much|a lot|too|as well|lately|though|now|right now|recently|already|again|for sure|anymore|together|really|"
    r"also|soon|these days|today|very much|a bit|all the time|more than anything|mostly|anyway|maybe|btw|lol|and|or|with|"
    r"to|of|for|in|on|at|by|from|about|the|a|an|is|was|yet|ever|back|by myself|since|after|before)$",
    IGNORECASE,
)
_PERSONS = {
    "my": "their", "mine": "theirs", "me": "them", "myself": "themselves", "our": "their", "ours": "theirs",
    "us": "them", "ourselves": "themselves", "i": "they", "we": "they", "i'm": "they're", "am": "are",
}  # fmt: skip
_PERSON = linear(rf"\b(?:{'|'.join(sorted(_PERSONS, key=len, reverse=True))})\b", IGNORECASE)


_LONGEST_TAIL = 24
"""Characters at the end that are searched for a tail."""
_GERUND = linear(r"\A\w+ing\b")
_MEANINGFUL = linear(r"[^\W\d_]{2}|\d")
_HALF = linear(r"\b(?:an?|the|my|our|some) [a-z-]+$")
"""An article and an adjective before a comma and another adjective."""
_IDLE = linear(r"(?<!\w)\w++$|(?:keep|make|help make|feel|use|put|positively|get|stay|help)\b", IGNORECASE)
"""Plans without a commitment."""


def _cut(text: str) -> str:
    end = _END.search(text, 1)
    return (text[: end.start()] if end else text).rstrip()


def _object(text: str) -> str | None:
    """Return the object of a fact in the third person, or None if it means nothing by itself."""
    thing = _cut(f" {text}").strip()
    if len(thing) > _LONGEST_OBJECT:
        return None
    while (tail := _TAIL.search(thing, max(len(thing) - _LONGEST_TAIL, 0))) is not None:
        thing = thing[: tail.start()]
    if thing.count('"') % 2 or (_HALF.search(thing) and text.lstrip()[len(thing) :].startswith(",")):
        return None
    if len(thing.split()) > 14 or VAGUE.search(thing) or not _MEANINGFUL.search(thing):
        return None
    return _PERSON.sub(lambda match: _PERSONS[match[0].lower()], thing)
