"""What the user asks the assistant to change about itself, and the settings that do so.

Rules find such requests, and not the model: it must not change anything because some text asks it to. They read nothing
but the user's own message, take whole sentences only, and would rather miss a request than take something else for one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mindful.conversation.expected import sentences
from mindful.core.pattern import IGNORECASE, Found, Short, linear
from mindful.core.ports import Database, Row

_LONGEST = 300
"""Characters of a message that may be a request: they are short."""

_TONES = {"casual": "informal", "warm": "friendly", "friendlier": "friendly"}
_OPPOSITES = {"formal": "informal", "informal": "formal", "friendly": "neutral"}
LANGUAGES = (
    "Arabic|Chinese|Czech|Danish|Dutch|English|Finnish|French|German|Greek|Hebrew|Hindi|Hungarian|Indonesian|Italian|"
    "Japanese|Korean|Norwegian|Persian|Polish|Portuguese|Romanian|Russian|Spanish|Swedish|Thai|Turkish|Ukrainian|"
    "Vietnamese"
)
_NO_NAME = linear(
    r"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun|To)day|Tomorrow|Tonight|Later|Back|Again|Now|Sometime|Maybe|Crazy|Old|Stupid|"
    r"Uber|An?|The|If|When|At|On|In"
)

_LASTING = linear(
    r"\b(?:from now on|from here on|in (?:the )?future|always|in all (?:our )?chats)\b,?", IGNORECASE
)
_SESSION = linear(r"\b(?:in|for the rest of) (?:this|our) (?:chat|conversation|session)\b,?", IGNORECASE)
_COURTESY = Short(
    r"^(?:please|ok(?:ay)?|hi|hello|hey|so|and|also|now|actually|just|"
    r"(?:can|could|would|will) you|i(?:'d| would) (?:like|prefer)(?: it if)? you to|i want you to|"
    r"you (?:can|may|should)|try to|let's)\b,?\s+|,?\s+(?:please|ok(?:ay)?|thanks|thank you|with me|to me|instead)$",
    _LONGEST,
    IGNORECASE,
)
_ASKED = Short(r"(?:can|could|would|will) you .*\bplease\b", _LONGEST, IGNORECASE)
_NOTHING = linear(r"(?:thanks|thank you|please|ok(?:ay)?|hi|hello|hey|great|good|perfect)?", IGNORECASE)

_NAME = r"(?P<name>(?:(?:Mr|Mrs|Ms|Dr|Prof)\.? )?[^\W\d_][\w'-]*(?: (?!any)[^\W\d_][\w'-]*){0,2})"
_ANSWER = r"(?:answers?|repl(?:y|ies)|responses?)"
_SPEAK = r"(?:speak|talk|write|answer|reply|respond|sound)"
_TONE = r"(?P<tone>formal|informal|casual|friendly|friendlier|warm|neutral)"
_STYLE = r"[^\W_][\w' -]{1,60}"
_RULES: tuple[tuple[str, Short], ...] = tuple(
    (key, Short(pattern, _LONGEST, flags))
    for key, pattern, flags in (
        ("user_name", rf"(?:[Cc]all me|[Aa]ddress me as|[Rr]efer to me as) {_NAME}", 0),
        (
            "user_name",
            rf"(?P<stop>(?:[Ss]top calling|(?:[Dd]on't|[Dd]o not) call) me {_NAME}(?: any ?more)?)",
            0,
        ),
        (
            "assistant_tone",
            rf"(?:(?:{_SPEAK}|be)(?: to me| with me)?|use)(?:(?: in)? an?)?(?: (?:a bit|a little|much|very))?"
            rf"(?: (?P<much>more|less))? {_TONE}(?:ly)?(?: (?:tone|style|language|manner))?",
            IGNORECASE,
        ),
        (
            "assistant_tone",
            rf"(?P<stop>(?:stop (?:being|speaking|talking)|(?:don't|do not) (?:be|speak|talk))(?: so)? {_TONE}(?:ly)?)",
            IGNORECASE,
        ),
        (
            "answer_language",
            rf"(?:(?:{_SPEAK}|continue|switch)(?: to me| me)?(?: only)?(?: in| to)?) "
            rf"(?P<language>{LANGUAGES})(?: only)?",
            IGNORECASE,
        ),
        (
            "answer_language",
            rf"(?P<stop>stop (?:speaking|answering|replying|responding|writing)(?: in)? "
            rf"(?P<language>{LANGUAGES}))",
            IGNORECASE,
        ),
        (
            "assistant_voice",
            rf"{_SPEAK}(?: to me)? (?:like (?P<voice>an? {_STYLE})|"
            rf"in the (?:style|voice|manner) of (?P<voice2>{_STYLE}))",
            IGNORECASE,
        ),
        (
            "assistant_voice",
            rf"(?P<stop>(?:stop (?:speaking|talking|writing|answering|replying|responding)"
            rf"|(?:don't|do not) {_SPEAK}) (?:like an? |in the (?:style|voice|manner) of ){_STYLE})",
            IGNORECASE,
        ),
        (
            "answer_length",
            rf"(?:keep|make) (?:it|your {_ANSWER}) (?P<short>short|brief|concise|shorter|short and simple)|"
            rf"(?:be|{_SPEAK})(?: more)? (?P<short2>brief|concise|succinct|briefly|concisely)|"
            rf"(?:(?:give|write|I want|I prefer)(?: me)? )?(?P<short3>shorter|short|brief) {_ANSWER}|"
            rf"(?:(?:answer|reply|respond|keep it)(?: only)?(?: in| to| with|:)?|{_SPEAK}(?: only)? in) "
            r"(?P<short4>an?|one|a single|two|a few) "
            r"(?:short )?(?:sentences?|words?|lines?)",
            IGNORECASE,
        ),
        (
            "answer_length",
            rf"be more (?P<long>detailed|verbose)|{_SPEAK} (?P<long2>in (?:more|greater) detail|at (?:more )?length)|"
            rf"(?:(?:give|write|I want|I prefer)(?: me)? )?(?P<long3>longer|long|more detailed|detailed) {_ANSWER}",
            IGNORECASE,
        ),
    )
)


class Change(NamedTuple):
    """A setting to be changed because a message asked for it; value None takes it back."""

    key: str
    value: str | float | None
    scope: str
    reason: str


def requested(message: str) -> list[Change]:
    """Find what a message asks to be changed: every sentence of it is such a request, or says that it is to last."""
    if len(message) > _LONGEST:
        return []
    changes: dict[str, Change] = {}
    nothing_else = True
    for sentence in sentences(message):
        change = _change(sentence)
        if change is not None:
            changes[change.key] = change
        elif not _NOTHING.fullmatch(sentence.rstrip(".!")):
            nothing_else = False
    return [change for change in changes.values() if nothing_else or _LASTING.search(change.reason)]


def prompt(
    settings: Mapping[str, Any], prompts: Mapping[str, Row], changes: Sequence[Change]
) -> Iterator[tuple[str, str]]:
    """Yield the key and the sentence of each setting in force that the system prompt names; changes come first.

    A free text is written as a JSON string, so that it cannot pass for an instruction.
    """
    changed = {change.key: change.value for change in changes}
    for key, sentence in prompts.items():
        value = changed.get(key, settings[key])
        if value is not None:
            written = str(value) if sentence["choices"] else json.dumps(value, ensure_ascii=False)
            yield key, sentence["text"].replace("%s", written)


def apply(db: Database, session_id: str, message_id: int, changes: Sequence[Change]) -> None:
    """Make the changes that a message asked for."""
    for change in changes:
        db.one(
            "select _mindful.assistant_change($1, $2, $3, $4, $5, $6)",
            ("text", "jsonb", "text", "uuid", "text", "bigint"),
            (change.key, json.dumps(change.value), change.scope, session_id, change.reason, message_id),
        )


def core_of(sentence: str) -> tuple[str, bool]:
    """Return a request without courtesies, and whether it is to last; no request gives an empty text."""
    lasting = bool(_LASTING.search(sentence))
    core = _SESSION.sub("", _LASTING.sub("", sentence.replace("\u2019", "'"))).rstrip(" .!,").strip()
    if core.endswith("?"):  # "Can you speak formally?" asks for it, "Do you speak Spanish?" asks something
        core = core.rstrip("?") if _ASKED.match(core) else ""
    while (rest := _COURTESY.sub("", core).strip()) != core:
        core = rest
    return core, lasting


def _change(sentence: str) -> Change | None:
    core, lasting = core_of(sentence)
    for key, rule in _RULES:
        if (found := rule.fullmatch(core)) and (value := _value(key, found)) is not None:
            scope = "user" if lasting or key == "user_name" else "session"
            return Change(key, value or None, scope, sentence)
    return None


def _value(key: str, found: Found) -> str | None:
    """Read a rule's match: the new value, empty to take the setting back, None for no request after all."""
    parts = {name: text for name, text in found.groupdict().items() if text}
    if key == "user_name" and not all(map(_is_name, parts["name"].split())):
        return None
    if "stop" in parts:
        return ""
    if key == "user_name":
        return parts["name"]
    if key == "assistant_tone":
        tone = parts["tone"].lower()
        tone = _TONES.get(tone, tone)
        return _OPPOSITES.get(tone, "neutral") if parts.get("much", "").lower() == "less" else tone
    if key == "assistant_voice":
        return parts.get("voice") or parts["voice2"]
    if key == "answer_language":
        return parts["language"].title()
    return "short" if any(name.startswith("short") for name in parts) else "long"


def _is_name(word: str) -> bool:
    return word[0].isupper() and not _NO_NAME.fullmatch(word)
