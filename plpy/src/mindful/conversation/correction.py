"""Corrections: what a statement says after the user's next words, such as "No, on Thursday.", corrected it.

A correction alone has none of the words of a question, so recall finds the statement before it. The rules are of
English.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain

from mindful.conversation.assistant import LANGUAGES
from mindful.conversation.expected import COLORS, EMPTY, MONTHS, NUMBERS, WEEKDAYS
from mindful.conversation.naming import FULL_NAME
from mindful.conversation.spelling import spelled
from mindful.core.pattern import CAPITAL, IGNORECASE, Found, Linear, Short, linear
from mindful.core.ports import Row

LONGEST = 120
"""Characters of a correction."""
FOLLOWING = 8
"""Turns after a statement that may correct it."""
ASKED = "?"
"""Stands for a turn of the assistant that ends with a question."""
_LONGEST_STATEMENT = 300
_LONGEST_ASKING = 10_000
"""Bytes of a reply below which its end is read for a question."""
_END = r"[,.:;!\u2013\u2014-]"
_CORRECTS = Short(
    r"^\W*(?:(?:oh dear|oh|ah|um|well)\W+)*(?:"
    r"(?:no|nope|nah|wait|hold on|hang on|sorry|oops|actually|correction|scratch that|or rather|i meant?|"
    r"my (?:mistake|bad))\b"
    rf"(?:\s|{_END})*|(?:[^,.:;!?]{{1,40}} )?"
    r"(?:wrong|misread|misheard|mistaken|mixed up|confused|tell a lie|a mistake)\b"
    rf"[^,.:;!?]{{0,40}}{_END}\s*)+",
    LONGEST,
    IGNORECASE,
)
_TAIL = Short(
    r"[,;.] ?(?:sorry|(?:(?:i )?(?:always|keep)|i (?:must|had|have|was|am|got|mixed|misread|forgot|meant))\b[^.!?]*)"
    r"[.!]*$",
    LONGEST,
    IGNORECASE,
)
"""An excuse after the correction."""
_DENIES = linear(r"^\W*(?:no|nope|nah)\b(?!,? (?:wait|sorry|actually|i meant?)\b)", IGNORECASE)
_WORD = r"(?!(?:i|we|you|he|she|they|it|now)\b)(?:[^\s.!?;]|\.(?=\d|\s\S))++"
_FRAGMENT = Short(
    r"^(?!(?:about|for|thanks?|but|maybe|worries|problem|idea)\b|"
    r"(?:an?|one|just an?) (?:second|moment|minute|bit)\b)(?:"
    r"(?:(?:it|they|that|this|he|she)(?: |['\u2019])(?P<verb>\w+)\b|i (?:meant?|said)\b|make (?:it|that)\b|"
    rf"(?:not|in|on|at|to|from|by|with|under|behind|an?|the|my|our|his|her)\b),?(?: {_WORD}){{0,6}}|"
    rf"{_WORD}(?: {_WORD}){{0,2}})[.!]*$",
    LONGEST,
    IGNORECASE,
)
"""What remains of a correction: "it is on Thursday", "Mr. Berg"."""
_RESTATES = Short(
    r"^(?!(?:It|They|That|This|He|She|I|We|You|The|My|Our|His|Her|Their|Your|An?|Not|In|On|At|To|From|By|Make)\b)"
    rf"{FULL_NAME} \w+(?: {_WORD}){{1,6}}[.!]*$",
    LONGEST,
)
"""A clause about a name: "Pauline moved to Marseille, not Lyon"."""
_BEING = frozenset({"is", "s", "are", "re", "was", "were", "will", "ll", "should", "has", "have"})
_CUE = linear(
    r"\b(?:no|nope|nah|not|wait|hold on|hang on|sorry|oops|actually|correction|scratch that|rather|instead of|i meant?|"
    r"mistaken?|my bad|wrong|misread|misheard|mixed up|confused|tell a lie)\b",
    IGNORECASE,
)
"""A word that each correction has. Most messages have none."""
_NEGATED = linear(
    rf"\b(?:not|instead of|rather than)(?: (?:in|on|at|to|from|by|for|the|{MONTHS}))? $", IGNORECASE
)
"""What stands before the value that was wrong."""
_HAS_SUBJECT = Short(
    r"^(?:the|my|our|his|her|their|your|this|that|\w++['\u2019]s) "
    r"(?:\w++ ){1,4}?(?:is|are|was|were|has|have|\w{2,}s)\b",
    LONGEST,
    IGNORECASE,
)
"""A clause with a subject of its own: "the dentist is on Friday"."""
_ADDRESSED = linear(rf"^{FULL_NAME}[.!]*$")
_ORDINALS = "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth"
_NO_PLACE = (
    "time|holiday|vacation|sale|fact|general|particular|person|advance|case|charge|love|trouble|touch|debt|front|mind|"
    "purpose|foot|average|hand|fire|weekdays?|weekends?|day|week|month|year|hours?|minutes?|moment|end|beginning|"
    "start|past|future|meantime|summer|winter|spring|autumn|fall|mood|hurry|rush|pain|least|most|first|last|once"
)
"""Nouns that make no place of a preposition: "in the end"."""
_HOUR = r"(?:(?:half|quarter) (?:past|to) )?"
_DAYTIMES = "mornings?|afternoons?|evenings?|nights?"
_PLACE = linear(
    r"\b(?:in|on|at|under|behind|beside|near|above|below|inside|from|by|next to) "
    rf"(?!(?:the )?(?:{_DAYTIMES}|{WEEKDAYS}|{MONTHS}|{_NO_PLACE})\b)(?:[^\W\d]+ ){{0,3}}[^\W\d]+(?=[.!]*$)"
)
_WHERE = frozenset(("in", "on", "under", "behind", "beside", "near", "above", "below", "inside", "next"))
"""Prepositions that may replace each other: "on the table", "under the bed". Others say something else."""
_VALUES = (
    linear(rf"\b(?:{WEEKDAYS})\b", IGNORECASE),
    linear(r"\b\d{1,2}(?:st|nd|rd|th)\b", IGNORECASE),
    linear(rf"\b(?:{MONTHS})\b", IGNORECASE),
    linear(rf"\b(?:{COLORS})\b", IGNORECASE),
    linear(rf"\b{_HOUR}(?:\d++(?:[.,:]\d+)*|(?:{NUMBERS}|noon|midnight|{_ORDINALS})\b)", IGNORECASE),
    linear(rf"(?:(?<=[^\W.!?:] )|(?<=, )|(?<=^))(?!(?:I|Not|The|My|Our)\b){FULL_NAME}(?:['\u2019]s)?"),
    linear(rf"\b(?:{_DAYTIMES})\b", IGNORECASE),
    _PLACE,
)
"""Kinds of values, of which a correction has one: weekdays, days, months, colors, numbers, names, times and places."""
_LANGUAGE = linear(rf"\bin (?:{LANGUAGES})\b", IGNORECASE)
"""A language, which is no place: "No, in English." asks for another answer."""
_SAID = linear(r"[^\W_]+")
_LITTLE = frozenset(
    _SAID.findall(
        "it they that this he she is s are re was were will ll be been should has have i meant mean said make not no "
        "but rather instead than in on at to from by with under behind of the a an my our his her its their am pm "
        "and or only just clock o"
    )
)
"""Words that say nothing beside a value."""
_PREPOSITIONS = frozenset(
    ("in", "on", "at", "to", "from", "by", "with", "for", "under", "behind", "of", "near")
)
_DEFINITE = frozenset(("the", "my", "our", "his", "her", "their"))
_ARTICLES = _DEFINITE | {"a", "an"}
_NO_VALUE = frozenset(("none", "no", "nothing"))
"""Words of numbers that take another place in a sentence than a number does."""
_BUT = Short(r"^not (.{2,50}?),? but (.{2,50}?)[.!]*$", LONGEST, IGNORECASE)
_BEFORE = Short(r"(\w+) (?:the |a |an |my |our )?$", _LONGEST_STATEMENT)
_CAPITAL = linear(CAPITAL)


def corrects(message: str) -> str | None:
    """Return the fragment by which a message corrects the statement before it: "on Thursday" of "No, on Thursday."."""
    if len(message) > LONGEST or not _CUE.search(message):
        return None
    message = spelled(message)
    opening = _CORRECTS.match(message)
    rest = _TAIL.sub(".", message[opening.end() :] if opening else message).strip()
    if _BUT.match(rest):
        return rest
    restates = opening is not None and _RESTATES.match(rest) is not None
    if not rest or not (restates or _FRAGMENT.match(rest)) or _LANGUAGE.search(rest):
        return None
    if opening and _ADDRESSED.match(rest) and opening[0].lower().endswith(("no ", "sorry ", "wait ", "on ")):
        return None  # "Sorry Anna!"
    values = [_sorted(form, rest) for form in _VALUES]
    return rest if any(wrong or (opening and right) for right, wrong in values) else None


def is_bare(message: str) -> bool:
    """Return whether a message corrects another one and has no subject, so that it says nothing by itself."""
    fragment = corrects(message)
    return fragment is not None and not _has_subject(fragment)


def is_correction_of(statement: str, message: str) -> bool:
    """Return whether a message changes what a statement says."""
    return corrected(statement, [message]) != statement


def corrected(statement: str, later: Iterable[str]) -> str:
    """Return what a statement says after the messages that follow it, up to the first that does not correct it.

    ASKED among the messages is a question of the assistant, to which "No, at noon." is the answer. After a question
    of the user, "No, blue." may correct its answer: only a correction with a subject is read.
    """
    is_asked = is_apart = False
    for message in later:
        if message == ASKED:
            is_asked = True
            continue
        if _asks(message):
            is_asked, is_apart = False, True
            continue
        fragment = None if is_asked and _DENIES.match(message) else corrects(message)
        if fragment is None or (is_apart and not _has_subject(fragment)):
            break
        if (said := _with(statement, fragment)) is None:
            break
        statement, is_asked, is_apart = said, False, False
    return statement


def statement_corrected(before: Sequence[Row], message: str) -> Row | None:
    """Return the statement that a message corrects, of the turns before it, newest first; None without one.

    The content of a turn of the assistant is ASKED, or says nothing.
    """
    later = [message]
    for turn in before:
        if turn["role"] != "user":
            later = [ASKED, *later] if turn["content"] == ASKED else later
        elif _asks(turn["content"]) or corrects(turn["content"]):
            later = [turn["content"], *later]
        else:
            statement = turn["content"]
            return turn if corrected(statement, later) != corrected(statement, later[:-1]) else None
    return None


def corrected_turns(turns: Sequence[Row]) -> list[Row]:
    """Return turns, newest first, with the user's statements as corrected."""
    said: list[Row] = []
    later: deque[str | None] = deque(maxlen=FOLLOWING)
    for turn in turns:
        content = turn["content"]
        if turn["role"] != "user":
            said.append(turn)
            later.appendleft(ASKED if _ends_asking(content) else None)
            continue
        said.append({**turn, "content": corrected(content, filter(None, later))})
        if _asks(content) or corrects(content):
            later.appendleft(content)
        else:
            later.clear()
    return said


def _asks(message: str) -> bool:
    return message.rstrip().endswith("?")


def _has_subject(fragment: str) -> bool:
    return bool(_HAS_SUBJECT.match(fragment) or _RESTATES.match(fragment))


def _ends_asking(content: str) -> bool:
    """Do as _mindful.ends_asking does in SQL."""
    return content.rstrip(" \t\r\n\"')").endswith("?") and len(content.encode()) < _LONGEST_ASKING


def _with(statement: str, fragment: str) -> str | None:
    """Return a statement with the fragment's value in place of its own of the same kind; None without a clear place."""
    if len(statement) > _LONGEST_STATEMENT or statement.rstrip().endswith("?"):
        return None
    found_verb = _FRAGMENT.match(fragment)
    verb = found_verb["verb"] if found_verb else None
    if verb and verb.lower() not in _BEING and verb.lower() not in statement.lower():
        return None  # "It leaves at noon." does not correct "It lands at ten."
    if (contrast := _BUT.search(fragment)) and (at := _whole(contrast[1], statement)) is not None:
        return f"{statement[:at]}{contrast[2]}{statement[at + len(contrast[1]) :]}"
    values = [(form, *_sorted(form, fragment)) for form in _VALUES]
    if not _says_no_more(fragment, [value for _, *found in values for value in chain(*found)], statement):
        return None
    said, settled = statement, set[int]()
    for form, right, wrong in values:
        kept = _kept(statement, form, right, fragment)
        settled.update(at for value in kept for at in range(*value.span()))
        right = [value for value in right if value not in kept]
        if len(right) != 1 or settled.intersection(range(*right[0].span())):
            continue
        if place := _place(said, form, right[0], fragment, wrong):
            said = f"{said[: place.start()]}{right[0][0]}{said[place.end() :]}"
        elif not _has_value(statement, form, right[0]):
            continue
        settled.update(range(*right[0].span()))
    if any(settled.isdisjoint(range(*value.span())) for _, right, _ in values for value in right):
        return None  # a value without a place: the statement would say half of what was meant
    return said if said != statement else None


def _sorted(form: Linear, fragment: str) -> tuple[list[Found], list[Found]]:
    """Return the values of a fragment that are right by it, and those that it rejects."""
    found = [value for value in form.finditer(fragment) if _is_value(value)]
    wrong = [value for value in found if _NEGATED.search(fragment[: value.start()])]
    return [value for value in found if value not in wrong], wrong


def _says_no_more(fragment: str, values: Sequence[Found], statement: str) -> bool:
    """Return whether all words beside the values are in the statement too, as those of another statement are not."""
    within = {place for value in values for place in range(*value.span())}
    beside = {word[0].lower() for word in _SAID.finditer(fragment) if word.start() not in within}
    return beside <= _LITTLE | {word.lower() for word in _SAID.findall(statement)}


def _whole(phrase: str, statement: str) -> int | None:
    """Return where a phrase begins in a statement, not within a word of it."""
    for word in _SAID.finditer(statement):
        end = word.start() + len(phrase)
        if statement[word.start() : end].lower() == phrase.lower() and not statement[end : end + 1].isalnum():
            return word.start()
    return None


def _place(statement: str, form: Linear, right: Found, fragment: str, wrong: Sequence[Found]) -> Found | None:
    """Return the value of a statement that is corrected.

    It is the one said to be wrong, the only one, or the one that stands after the same word.
    """
    values = [value for value in form.finditer(statement) if _is_value(value)]
    if wrong:
        values = [value for value in values if value[0].lower() == wrong[0][0].lower()]
    if form is _PLACE:
        values = [value for value in values if _are_alike(value[0], right[0])]
    elif _CAPITAL.match(right[0]):
        values = [
            value
            for value in values
            if _stand_alike(_word_before(statement, value), _word_before(fragment, right))
        ]
    if len(values) > 1 and _CAPITAL.match(right[0]):
        values = [value for value in values if value.start()] if len(values) == 2 else values
    if len(values) > 1:
        before = _word_before(fragment, right)
        values = [value for value in values if before and _word_before(statement, value) == before]
    if _RESTATES.match(fragment):
        values = [
            value for value in values if _ends_like(statement[: value.start()], fragment[: right.start()])
        ]
    return values[0] if len(values) == 1 and values[0][0].lower() != right[0].lower() else None


def _kept(statement: str, form: Linear, right: Sequence[Found], fragment: str) -> list[Found]:
    """Return what a clause about a name repeats of the statement: the name, beside a value that is new."""
    if len(right) == 1 or not _RESTATES.match(fragment):
        return []
    return [value for value in right if _has_value(statement, form, value)]


def _ends_like(statement: str, fragment: str) -> bool:
    """Return whether a statement ends with the words of a fragment."""
    words = [word.lower() for word in _SAID.findall(fragment)]
    return [word.lower() for word in _SAID.findall(statement)][-len(words) :] == words


def _are_alike(one: str, other: str) -> bool:
    """Return whether two places have the same form: "in Graz" is none of "in a meeting" and of "at Siemens"."""
    (first, *ones), (second, *others) = one.split(), other.split()
    has_name = [any(map(_CAPITAL.match, words)) for words in (ones, others)]
    articles = [words[0] if words[0] in _ARTICLES else "" for words in (ones, others)]
    if has_name[0] != has_name[1] or (articles[0] in _DEFINITE) != (articles[1] in _DEFINITE):
        return False
    return first == second or (not has_name[0] and {first, second} <= _WHERE)


def _has_value(statement: str, form: Linear, value: Found) -> bool:
    return any(found[0].lower() == value[0].lower() for found in form.finditer(statement))


def _stand_alike(one: str | None, other: str | None) -> bool:
    """Return whether names stand after the same preposition, or one of them after none."""
    return one == other or not {one, other} <= _PREPOSITIONS


def _is_value(value: Found) -> bool:
    return value[0].lower() not in EMPTY | _NO_VALUE


def _word_before(text: str, value: Found) -> str | None:
    before = _BEFORE.search(text[: value.start()])
    return {"s": "is", "re": "are"}.get(word := before[1].lower(), word) if before else None
