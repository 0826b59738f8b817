"""The name that a sentence gives to what a question asks the name of. The rules are of English."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mindful.conversation.asked import thing_named
from mindful.core.pattern import CAPITAL, Short, linear

_LONGEST = 300
"""Characters of a sentence, or of a question, that is read."""
_TITLE = r"(?:Dr|Mr|Mrs|Ms|Prof|St)\.?|Frau|Herr|Professor|Doctor|Sister|Brother|Father|Signora|Signor|Do\u00f1a|Don"
_CAPITAL = rf"(?:{CAPITAL}[\w'\u2019-]*)"
FULL_NAME = (
    rf"(?:(?:{_TITLE}) )?{_CAPITAL}(?: (?:(?:van|von|de|der|den|di|da|del|la|el|bin) ){{0,2}}{_CAPITAL})*"
)
_SEVERAL = rf"{FULL_NAME}(?:(?:, (?:and )?| and | or ){FULL_NAME})*"
_NAMING = (
    r"\b(?:called|named|nicknamed|christened|baptized|baptised|dubbed|known as|known to us as|"
    r"(?:goes|went|go) by(?: the (?:nick)?name(?: of)?)?|by the (?:nick)?name of|with the (?:nick)?name|"
    r"(?:answers|listens|responds) to(?: the name(?: of)?)?|"
    r"(?:nick)?names?(?: is| are| was| were|'s)|(?:is|are|was|were) (?:affectionately |officially )?(?:called|named))"
    r" (?:now |simply )?"
)
_GIVEN = Short(rf"(?i:{_NAMING})[\"'\u201c\u2018]?(?P<name>{_SEVERAL})", _LONGEST)
_LOWER = Short(
    r"\b(?i:(?:is|are|was|were) (?:now )?(?:called|named)|name is|names are) [\"'\u201c\u2018]?(?P<name>[a-z][\w-]*)"
    r"[\"'\u201d\u2019]?(?=\s*(?:[,.;!]|$))",
    _LONGEST,
)
_BEING = Short(rf"\b(?i:is|are|was|were|will be|became|remains) (?:now )?(?P<name>{_SEVERAL})", _LONGEST)
_BEFORE = Short(
    rf"(?:^|[.,;:] )(?P<name>{_SEVERAL}) (?i:is|are|was|were|became|will be) "
    r"(?i:the name of |the names of )?(?i:my|our|the|his|her|their) ",
    _LONGEST,
)
_BESIDE = Short(
    rf"(?P<name>{FULL_NAME}), (?i:my|our|the|his|her|their) [^,.;]{{1,60}}[,.;]|"
    rf"\b(?i:my|our|the|his|her|their) (?:[a-z-]+ ){{0,2}}[a-z-]+,? (?P<after>{FULL_NAME})",
    _LONGEST,
)
_CALLED_SELF = Short(
    rf"\b(?i:my (?:full )?name(?: is|'s)|i am called|i'm called|call(?:s|ed)? me|i go by) (?P<name>{FULL_NAME})",
    _LONGEST,
)
_SELF = Short(
    rf"(?:^|[.!?,;:] )(?:(?i:hi|hello|hey|and)[ ,!]+)?(?i:i am|i'm|this is|it's) (?P<name>{FULL_NAME})"
    r"(?=\s*(?:[,.!;]|$)| (?:and|from|here|speaking|by the way)\b)",
    _LONGEST,
)
_TITLES = Short(rf"^(?:(?:{_TITLE})\s+)+", _LONGEST)
_ANY_TITLE = Short(rf"\b(?:{_TITLE}) (?={CAPITAL})", _LONGEST)
_UNTITLED = Short(rf"\b{_CAPITAL}(?: {_CAPITAL})*", _LONGEST)
_FIRST_NAME = linear(r"\b[Ff]irst names?\b")
_LAST_NAME = linear(r"\b(?:[Ll]ast|[Ff]amily) names?\b|\b[Ss]urnames?\b")
_FULLS = Short(rf"\b{_CAPITAL}(?: {_CAPITAL})+", _LONGEST)
_ANY = linear(r"[^\W_]+")
_NO_NAME = frozenset(
    _ANY.findall(
        "i he she it we they you not now then there this that these those yes no january february march april may june "
        "july august september october november december monday tuesday wednesday thursday friday saturday sunday"
    )
)
_OPENINGS = frozenset(
    _ANY.findall(
        "the a an my our his her their its in on at by for from with without when if after before since until because "
        "and but so who what where which how why next last every each all some both as of to please maybe"
    )
)
"""Words that begin sentences."""
_NATIONS = frozenset(
    _ANY.findall(
        "german french english british american irish scottish welsh dutch belgian swiss austrian italian spanish "
        "portuguese polish czech slovak hungarian romanian bulgarian greek turkish russian ukrainian swedish norwegian "
        "danish finnish icelandic canadian mexican brazilian argentinian chilean indian pakistani chinese japanese "
        "korean vietnamese thai australian african nigerian kenyan egyptian iranian israeli arab european asian "
        "catholic protestant muslim jewish buddhist hindu"
    )
)


def own_name(statement: str) -> str | None:
    """Return the name that a user gives as their own: "Tom" of "Hi, I am Tom and I run a bakery."."""
    plain = statement[:_LONGEST].replace("\u2019", "'")
    for form in (_CALLED_SELF, _SELF):
        for match in form.finditer(plain):
            words = {word.lower() for word in _ANY.findall(match["name"])}
            if not words & (_NATIONS | _NO_NAME):
                return match["name"]
    return None


def has_part(question: str, name: str) -> bool:
    """Return whether a name has the part that a question asks for: "Dr. Chen" has no first, "Anna" no last name."""
    rest = _TITLES.sub("", name)
    if _FIRST_NAME.search(question):
        return rest == name or " " in rest
    return not _LAST_NAME.search(question) or rest != name or " " in rest


def name_given(question: str, sentence: str) -> str | None:
    """Return the name that a sentence gives to what a question asks the name of, as far as its form shows that.

    The sentence has the noun of the question, as in "My cat is called Misha and hates the vacuum cleaner."
    """
    thing = thing_named(question)
    if thing is None:
        return None
    if person := _person(thing, question):
        return _full_name(person, sentence)
    at = _place(thing, sentence)
    if at < 0:
        return None
    known = {word.lower() for word in _ANY.findall(question)} | _NO_NAME
    found = [(start, name) for start, name in _names(sentence) if not _is_known(name, known)]
    found = [one for one in found if has_part(question, one[1])]
    after = [one for one in found if one[0] > at]
    return min(after)[1] if after else max(found)[1] if found else None


def names_in(sentence: str, question: str) -> list[str]:
    """Return the names of a sentence that a question lacks, first names of full ones; its first word comes last."""
    known = {word.lower() for word in _ANY.findall(question)} | _NO_NAME | _NATIONS | _OPENINGS
    found = [
        (match.start() == 0, match[0].split()[0].strip("'\u2019"))
        for match in _UNTITLED.finditer(_ANY_TITLE.sub("", sentence[:_LONGEST]))
    ]
    return [name for _, name in sorted(found, key=lambda one: one[0]) if not _is_known(name, known)]


def _person(thing: str, question: str) -> str | None:
    """Return the name in a question that asks for another part of it, such as a surname."""
    words = _ANY.findall(question[1:])
    return next((word for word in words if word.lower() == thing and word[0].isupper()), None)


def _full_name(person: str, sentence: str) -> str | None:
    names = (match[0].strip("'\u2019") for match in _FULLS.finditer(sentence))
    return next((name for name in names if len(name.split()) > 1 and person in name.split()), None)


def _names(sentence: str) -> Iterator[tuple[int, str]]:
    """Yield the names that a sentence gives, and where: those of the surest form that it has."""
    for form in (_GIVEN, _LOWER, _BEING, _BEFORE, _BESIDE):
        names = [
            (match.start(group), match[group].strip("'\u2019"))
            for match in form.finditer(sentence)
            for group in match.groupdict()
            if match[group]
        ]
        if names:
            yield from names
            return


def _is_known(name: str, known: Collection[str]) -> bool:
    return all(word.lower() in known for word in _ANY.findall(name))


def _place(thing: str, sentence: str) -> int:
    """Return where a noun, or another form of it, stands in a sentence; -1 if it is absent."""
    stem = thing[:-1] if len(thing) > 3 and thing.endswith("s") else thing
    places = (
        match.start() for match in _ANY.finditer(sentence) if match[0].lower() in {thing, stem, stem + "s"}
    )
    return next(places, -1)
