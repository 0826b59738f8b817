"""Facts that changed: which newer memory replaces an older one. The rules are of English.

The measurements behind the constants are in docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mindful.conversation.asked import nouns_asked
from mindful.conversation.bearing import LONGEST, OWNED, SEVERAL, Bearing, parts
from mindful.conversation.clarification import of_names
from mindful.conversation.expected import MONTHS, WEEKDAYS, candidates, telling
from mindful.conversation.matter import OWN
from mindful.conversation.near import Stored
from mindful.core.pattern import CAPITAL, IGNORECASE, linear
from mindful.core.ports import Database, Row
from mindful.models.runtime import FoundEmbedder

_ALIKE = 0.6
"""Cosine similarity from which two memories about the same words state the same thing."""
_CHANGED = linear(
    r"\b(?:now|new|newly|moved|changed|switched|replaced|instead|rather than|from now on|no longer|any ?more|became|"
    r"become|raised|lowered|increased|reduced|rose|risen|fell|fallen|(?:grew|grown)(?! up)|dropped|"
    r"doubled|tripled|halved|"
    r"more expensive|cheaper|dearer|postponed|delayed|cancell?ed|called off|put off|brought forward|extended|extension|"
    r"swapped|repainted|coat of|quit|gave up|given up|took over|taken over|left|sold|finished|broke up|out of|"
    r"(?:up|down)(?: to|graded)|(?:re|un)(?:named|booked|scheduled|arranged|planned|assigned|placed|located)|"
    r"another|by now|meanwhile|these days|nowadays|lately|promoted|demoted|transferred|graduated|retired|joined|"
    r"(?:got|received|taken|took) an? (?:raise|rise|promotion|job|post|position)|"
    r"so (?:we|it|they|there|he|she)(?:['\u2019]| will| is| are)|"
    r"(?:from|since|as of|starting) (?:this |next |last )?(?:today|tomorrow|week|month|year|"
    rf"spring|summer|autumn|winter|{MONTHS}|{WEEKDAYS}))\b",
    IGNORECASE,
)
"""Words by which a statement says that something is not as before."""
_CHANGED_ALIKE = 0.3
"""Cosine similarity from which such a statement replaces an older one."""
_CHANGED_NEAR = 0.45
"""Cosine similarity to an older one from which such a statement is looked for that recall did not find."""
_NEWER = 10
"""How many memories nearest to the older one are looked at for that."""
_ASKED_BEFORE = 0.1
"""Gain in cosine similarity to the question from which a newer memory is the question itself, asked before in a form
that `_mindful.asks` does not know. A statement that replaces another resembles the question about as much."""
_PAST = linear(r"\b(?:did|was|were|had|used to|previous(?:ly)?|former(?:ly)?)\b", IGNORECASE)
"""Forms of questions for what may have changed since."""
_BEFORE = linear(r"\b(?:used to|previous(?:ly)?|former(?:ly)?|originally)\b|\bbefore\W*$", IGNORECASE)
"""Forms of questions for what was before a change."""
_OWNER = linear(
    rf"\b((?:(?i:my|our|his|her|their) \w+|{CAPITAL}\w+)['\u2019]s)\b(?! (?:in|at|on|a|an|the|now|to)\b)(?=(?: (\w+))?)"
)
"""Possessives and their things: "Lena's" and "husband". A statement about the husband is not about Lena."""
_OBJECT = linear(
    r"\b(?i:moved|changed|switched|replaced|raised|lowered|increased|reduced|dropped|swapped|sold|left|quit|joined|"
    r"finished|extended|postponed|delayed|cancell?ed|called off|put off|gave up|given up|took over|taken over)\b"
    r"(?: (?:the|an?|my|our|his|her|their|its)(?: new| old)? "
    r"(?!(?:few|couple|second|minute|hour|day|night|week|month|year|while)s?\b)(\w+)|"
    r" (?!(?:the|an?|my|our|his|her|their|its|to|from|in|into|at|on|onto|over|out|up|down|back|away|off|by|for|since|"
    r"until|till|last|next|this|that|yesterday|today|tomorrow|now|again|and|or|but|with|after|before|when|because|as|"
    r"there|here|home|recently|already|just|too)\b)([a-z]\w+))?"
)
"""A verb of change and its object: who "moved the piano to Oslo" or "quit smoking in Oslo" does not live there."""
_DETERMINERS = frozenset({"the", "this", "that", "my", "our", "his", "her", "their", "its", "s"})
"""Words before a noun; "s" ends a possessive."""
_ABOUT = linear(r"\b(?:about|of|for|with) (?:the|our|my|his|her|their) ([^\W\d_]+)", IGNORECASE)
_COMPLEMENTS = frozenset({"about", "at", "between", "by", "for", "from", "in", "of", "on", "to", "with"})
"""Words after a noun that say which one it is."""
_WORD = linear(r"[^\W_]+")
_SELF = linear(r"\b(?:i|we)\b", IGNORECASE)


_MOVED_NEAR = 0.25
"""The same for where somebody lives: "We moved to 8 Castle Lane." has no word of a question for the address."""
_MOVED = linear(
    r"\b(?:moved|moving|relocated|move|relocate) (?:back |house |out |in )?(?:to|into|from)\b", IGNORECASE
)
_LIVES = linear(r"\b(?:live|lives|living|address|home|based|reside|resides)\b", IGNORECASE)
"""A move, and questions that it answers without a word of them."""


def later_changes(
    db: Database, bearing: Bearing, embedder: FoundEmbedder, session_id: str | None
) -> list[Row]:
    """Return statements of a change that are newer than the memory that answers best, and like it.

    Such a statement may have no word of the question: "We've left Graz for Vienna." for "Where do we live?".
    """
    is_present = not SEVERAL.search(bearing.question) and not _PAST.search(bearing.question)
    if not (bearing.own and bearing.answering and is_present):
        return []
    least = _MOVED_NEAR if _LIVES.search(bearing.question) else _CHANGED_NEAR
    found = Stored(db, embedder).newer(bearing.answering[0], session_id, _NEWER, least)
    return [row for row in found if len(row["content"]) <= LONGEST and _changed_to(bearing, row)]


def _changed_to(bearing: Bearing, row: Row) -> list[str]:
    """Return the words of a statement of a change that may answer the question."""
    return candidates(bearing.question, row["content"]) if _CHANGED.search(row["content"]) else []


def outdated(db: Database, bearing: Bearing, rows: Sequence[Row]) -> dict[int, int]:
    """Return the memories that a newer one replaces, and which: both are alike and have the same words of the question.

    A name alone does not count, as a person has many facts.
    """
    short = [row for row in rows if row["kind"] in ("fact", "message") and len(row["content"]) <= LONGEST]
    weighed = [row for row in short if row["id"] in bearing.held]
    alike = [row for row in weighed if bearing.held[row["id"]] or _CHANGED.search(row["content"])]
    if len(alike) < 2 or SEVERAL.search(bearing.question) or _BEFORE.search(bearing.question):
        return {}
    if of_names(bearing.question, [row["content"] for row in alike]) is not None:
        return {}  # they are about different people
    ids = [row["id"] for row in alike]
    found = db.one(
        "select _mindful.recall_nearness($1, $2) as found", ("text", "bigint[]"), (bearing.embedder, ids)
    )["found"]
    nearness = {(a, b): found[at * len(ids) + to] for at, a in enumerate(ids) for to, b in enumerate(ids)}
    return {
        old["id"]: new["id"]
        for old in alike
        for new in sorted(alike, key=lambda row: (row["said_at"], row["id"]))
        if (new["said_at"], new["id"]) > (old["said_at"], old["id"])
        and _replaces(bearing, new, old, nearness[old["id"], new["id"]])
    }


def _replaces(bearing: Bearing, new: Row, old: Row, nearness: float) -> bool:
    if nearness < _CHANGED_ALIKE:
        return False
    if told := _changed_to(bearing, new):
        return _changes(bearing, new, old, told, nearness)
    return (
        bearing.beyond[new["id"]] == bearing.beyond[old["id"]]
        and bearing.has_subject(old["id"])
        and nearness >= _ALIKE
        and bearing.similarities[new["id"]] - bearing.similarities[old["id"]] < _ASKED_BEFORE
    )


def _changes(bearing: Bearing, new: Row, old: Row, told: Collection[str], nearness: float) -> bool:
    """Return whether a statement of a change is about the person or thing of an older one and of the question.

    A statement with half of the words, and none of the nouns, may be about it: "an extension for the report" for the
    deadline of the report. One with some of the nouns is about another thing: "the sales meeting", not the budget
    meeting.
    """
    question, content = bearing.question, new["content"]
    if _is_about_else(content, question, old["content"]):
        return False
    names = parts(bearing.names(old["id"]))
    of_old, of_new = (parts([bearing.held[row["id"]]]) - {"s"} for row in (old, new))
    is_alike = len((of_old - names) & of_new) * 2 >= max(len(of_old - names), 1)
    of_self = _SELF.search(question) is not None and _SELF.search(content) is not None
    is_of_them = of_self or (bool(names) and not _is_of_else(content, question, old["content"]))
    is_near = is_of_them and nearness >= _ALIKE
    is_moved = is_of_them and _LIVES.search(question) is not None and _MOVED.search(content) is not None
    is_same = set(telling(question, old["content"])) & set(told) or is_near or is_moved
    nouns = [noun for noun in nouns_asked(question) if noun in of_old - names]
    is_plain = nearness >= _ALIKE and bool(nouns) and _is_plain(nouns[-1], content)
    if not (is_alike or is_same or is_plain):
        return False
    of_new -= parts(owner for owner, owned in _OWNER.findall(content) if owned.lower() not in of_old)
    if names - of_new:
        return False
    if _SELF.search(question) or _SELF.search(old["content"]):
        rest = _OWNER.sub(" ", content)
        return (is_alike and rest == content) or OWN.search(rest) is not None
    owned = parts(OWNED.findall(question)) & of_old
    return is_plain or (
        owned <= of_new and (of_new.issuperset(nouns) or ((is_alike or is_near) and of_new.isdisjoint(nouns)))
    )


def _is_plain(noun: str, content: str) -> bool:
    """Return whether a statement has a noun alone: not "the sales meeting", nor "the meeting about sales"."""
    words = _WORD.findall(content.lower())
    return any(
        word == noun and words[at - 1] in _DETERMINERS and words[at + 1] not in _COMPLEMENTS
        for at, word in enumerate(words[1:-1], start=1)
    )


def _is_about_else(content: str, question: str, older: str) -> bool:
    """Return whether a statement is about one thing, and the question or the older statement about another."""
    about = parts(_ABOUT.findall(content))
    others = parts([*_ABOUT.findall(question), *_ABOUT.findall(older)])
    return (
        bool(about and others)
        and about.isdisjoint(parts([question, older]))
        and others.isdisjoint(parts([content]))
    )


def _is_of_else(content: str, *texts: str) -> bool:
    """Return whether all that a statement says was changed are things that none of the texts has."""
    things = [certain or other for certain, other in _OBJECT.findall(content)]
    return bool(things) and all(thing and thing.lower() not in parts(texts) for thing in things)
