"""Questions for all that is known of somebody or something, and for the user's own name. The rules are of English.

Such a question shares no word with its answers, and resembles none: "What do you know about me?", "Who am I?".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mindful.conversation import bearing
from mindful.conversation.bearing import Bearing
from mindful.conversation.expected import plain
from mindful.conversation.matter import ABOUT
from mindful.conversation.naming import has_part, own_name
from mindful.conversation.near import Stored
from mindful.conversation.prompt import OWN
from mindful.conversation.restated import restated, said_next
from mindful.core.pattern import CAPITAL, IGNORECASE, Short, linear
from mindful.core.ports import Database, Row
from mindful.core.vector import to_text
from mindful.models.runtime import FoundEmbedder

_LONGEST = 200
"""Characters of a question that is read."""
_TOPIC = r"(?: (?:about|of|on|regarding) (?P<topic>[^?!.;]{1,100}?))"
_EVERYTHING = tuple(
    Short(
        rf"^\W*(?:(?:hi|hello|hey|so|and|ok|okay|well|now|please)\b\W*)*(?:{source})\W*$",
        _LONGEST,
        IGNORECASE,
    )
    for source in (
        rf"what(?: else| all)? (?:do|can|did|could) you (?:already |still |actually |really )?"
        rf"(?:know|remember|recall|tell me){_TOPIC}(?: so far| now| already| yet)?",
        r"what(?: else| all)? (?:do|can) you (?:already |still )?remember(?: so far)?",
        rf"what(?: else| all)? (?:have|did) (?:i|we) (?:already |ever )?(?:tell|told|say|said|mention|mentioned)"
        rf"(?: to)?(?: you)?{_TOPIC}?(?: so far| already| yet)?",
        r"(?:(?:can|could|would|will) you )?(?:(?:tell|give|show) me |list |repeat |summari[sz]e )?"
        rf"(?:everything|all|anything|something|what)(?: that)? you (?:know|remember){_TOPIC}",
        r"(?:(?:can|could) you )?tell me (?:more |something |all )?about "
        r"(?P<topic>(?:my|our)\b[^?!.;]{1,80}|me|myself|us)",
        rf"(?:do you|you) (?:know|remember) (?:anything|something){_TOPIC}",
    )
)
_WHO = Short(
    r"^\W*(?:(?:[Ss]o|[Aa]nd|[Hh]i|[Hh]ey)\b\W*)*[Ww]ho(?:'s|\u2019s| is| was) "
    rf"(?P<topic>{CAPITAL}[\w.'\u2019-]*(?: {CAPITAL}[\w'\u2019-]+){{0,3}})\W*$",
    _LONGEST,
)
_NAME = Short(
    r"^\W*(?:(?:what|how)(?:'s|\u2019s| is| was)? )?"
    r"(?:my (?:own )?(?:(?:(?:full|first|last|family) )?name|surname)(?: is| was)?|"
    r"(?:who|what|how) (?:am i|i am|i['\u2019]m)(?: called)?|"
    r"(?:who|what|how) (?:do|should|would|can) you (?:call|address) me)(?: again)?\W*$",
    _LONGEST,
    IGNORECASE,
)
_USER = frozenset(("me", "myself", "us", "ourselves", "my life", "who i am"))
_INTRODUCES = (
    r"\m([Mm]y (full )?name|I am|I['\u2019]m|[Ii] go by|[Cc]all(s|ed)? me|[Tt]his is|[Ii]t['\u2019]s) "
)
_FIRST_PERSON = r"\m([Ii]|[Mm]y|[Mm]ine|[Mm]e|[Ww]e|[Oo]ur|[Uu]s)\M"
"""Regular expressions of PostgreSQL for statements that may give the user's name, and that are about the user."""
_READ = 200
"""Newest statements that are compared."""
_PROFILE = "I am a person. I live here, I work there, and I like this."
"""What a statement resembles that tells more of the user than one of a passing matter does."""
_OWN = linear(r"(?:my|our)\b", IGNORECASE)
_NAMES = linear(rf"(?<![\w'\u2019])(?!(?:Mr|Mrs|Ms|Dr|Prof|The|My|Our)\b){CAPITAL}[^\W\d_]+")


class Asked(NamedTuple):
    """What a question asks to be told of: the user, of whom the name alone may be asked, or a topic."""

    topic: str | None = None
    name: bool = False


def asked_about(message: str) -> Asked | None:
    """Read such a question; return None for any other message."""
    if len(message) > _LONGEST:
        return None
    if _NAME.search(plain(message)):
        return Asked(name=True)
    found = next((match for form in (*_EVERYTHING, _WHO) if (match := form.search(message))), None)
    if found is None:
        return None
    topic = (found.groupdict().get("topic") or "").strip()
    return Asked(topic if topic and topic.lower() not in _USER else None)


def known(
    db: Database,
    message: str,
    user_name: str | None,
    session_id: str | None,
    embedder: FoundEmbedder,
    most: int,
    recall: Callable[[str, str, str, int], Sequence[Row]],
) -> tuple[Bearing, Sequence[Row]] | None:
    """Return what is known of what a message asks to be told of.

    None for another message, and for a topic that is not the user's own and of which nothing is known.
    """
    asked = asked_about(message)
    if asked is None:
        return None
    nothing = Bearing(message, embedder.name, {}, {}, {}, {}, own=True)
    if asked.name:
        return _named(db, nothing, user_name, session_id)
    if asked.topic is None:
        rows = _of_user(db, embedder, most, session_id)
    elif not (rows := _of_topic(db, asked.topic, embedder, most, recall)) and not _OWN.match(asked.topic):
        return None
    return _with(nothing, rows)._replace(everything=True), rows


def _with(found: Bearing, rows: Sequence[Row]) -> Bearing:
    contents = {row["id"]: row["content"] for row in rows}
    alike, words = dict.fromkeys(contents, 1.0), dict.fromkeys(contents, "")
    return found._replace(similarities=alike, beyond=words, held=words, contents=contents, scores=alike)


def _named(
    db: Database, nothing: Bearing, user_name: str | None, session_id: str | None
) -> tuple[Bearing, Sequence[Row]]:
    """Return the name that the user gave last; a setting comes first, and is in the prompt."""
    if user_name is not None and has_part(nothing.question, user_name):
        return nothing._replace(own_name=user_name), []
    for row in _stated(db, _INTRODUCES, session_id):
        if (name := own_name(row["content"])) and has_part(nothing.question, name):
            return _with(nothing, [row])._replace(own_name=name), [row]
    return nothing, []


def _of_user(db: Database, embedder: FoundEmbedder, most: int, session_id: str | None) -> list[Row]:
    """Return the statements that tell most of the user, each once."""
    stated = _stated(db, _FIRST_PERSON, session_id)
    rows = list({row["content"]: row for row in reversed(stated)}.values())
    vector = to_text(embedder.embed([_PROFILE])[0])
    similar = Stored(db, embedder).similarities([row["id"] for row in rows], [vector] * len(rows))
    order = sorted(range(len(rows)), key=lambda at: -similar[at])
    return [rows[at] for at in order[:most]]


def _of_topic(
    db: Database,
    topic: str,
    embedder: FoundEmbedder,
    most: int,
    recall: Callable[[str, str, str, int], Sequence[Row]],
) -> list[Row]:
    """Return the memories about a topic: they have its names, or are similar to a topic without names."""
    vector = to_text(embedder.embed([topic])[0])
    found_rows = recall(topic, vector, embedder.name, 2 * most)
    rows = {row["id"]: row for row in found_rows if row["role"] not in OWN and row["kind"] != "summary"}
    found = bearing.weigh(db, topic, embedder, vector, {id_: row["content"] for id_, row in rows.items()})
    near, names = found.near(), set(_NAMES.findall(topic))
    about = [
        id_
        for id_, similarity in found.similarities.items()
        if (names <= set(_NAMES.findall(found.held[id_])) if names else similarity >= ABOUT or id_ in near)
    ]
    return [rows[id_] for id_ in sorted(about, key=lambda one: -found.similarities[one])[:most]]


def _stated(db: Database, pattern: str, session_id: str | None) -> Sequence[Row]:
    rows = db.rows(
        """select id, content, kind, role, extract(epoch from created_at) as said_at,
                  1 as score, null::float as similarity, null::float as bm25
           from _mindful.stated_by_user($1, $2, $3)""",
        ("text", "integer", "uuid"),
        (pattern, _READ, session_id),
    )
    return [row for row in restated(db, said_next(db, rows)) if not row["content"].rstrip().endswith("?")]
