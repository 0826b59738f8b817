"""Requests that name a setting, "Set your units to metric.", or ask to forget, and the honest replies to others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mindful.conversation.assistant import Change, core_of, requested
from mindful.core.pattern import IGNORECASE, Short
from mindful.core.ports import Row

_LONGEST = 300
_ALIASES = {
    "tone": "assistant_tone",
    "voice": "assistant_voice",
    "style": "assistant_voice",
    "language": "answer_language",
    "length": "answer_length",
}
_SETTING = r"[^\W_][\w. -]{1,60}?"
_REQUEST = Short(
    r"(?:set|change|switch|adjust) (?:"
    rf"your (?P<own>{_SETTING})(?: settings?)?|(?:the )?setting (?P<called>{_SETTING})|"
    rf"the (?P<before>{_SETTING}) setting) to (?P<value>.{{1,100}})",
    _LONGEST,
    IGNORECASE,
)


_FORGET = Short(
    r"(?:forget|delete|erase|remove) (?:everything|all (?:of )?(?:it|this|that)|"
    r"(?:all |everything )?(?:of |about )?(?:me|us|my (?:memories|messages|data))|"
    r"(?:all |everything )?(?:of )?(?:what |that )?"
    r"(?:(?:i|we)(?: have|'ve)? (?:just )?(?:told|said)|you (?:know|remember))\b[^?]{0,100})|"
    r"forget (?:everything about|(?:about )?(?:that (?:i|we|my|our)|my|our)) [^,.:;?]{1,100}",
    _LONGEST,
    IGNORECASE,
)
_QUOTES = " '\"\u2018\u2019\u201c\u201d\u00ab\u00bb"
_CANNOT_FORGET = (
    "I cannot delete memories in a chat, so nothing was deleted. "
    'Use memory_forget: SELECT * FROM memory_forget(filter => \'{"content": "..."}\', dry_run => true);'
)


def asks_to_forget(message: str) -> bool:
    """Return whether a message asks to forget something. It states nothing: "Forget that I live in Hull."."""
    return len(message) <= _LONGEST and _FORGET.fullmatch(core_of(message.strip())[0]) is not None


def wanted(
    settings: Mapping[str, Any], prompts: Mapping[str, Row], message: str
) -> tuple[list[Change], str | None]:
    """Find what a message asks to be changed, where the assistant may do so, or the reply that it cannot be."""
    line = len(message) <= _LONGEST and "\n" not in message.strip()
    if asks_to_forget(message):
        return [], _CANNOT_FORGET
    if not settings["assistant_changes"]:
        return [], None
    if changes := requested(message):
        return changes, None
    return _named(settings, prompts, message.strip()) if line else ([], None)


def _named(
    settings: Mapping[str, Any], prompts: Mapping[str, Row], message: str
) -> tuple[list[Change], str | None]:
    """Return the change that a message asks for by a setting's name, or the reply that it cannot be made."""
    core, lasting = core_of(message)
    found = _REQUEST.fullmatch(core)
    if not found:
        return [], None
    parts = found.groupdict()
    name = (parts["own"] or parts["called"] or parts["before"]).strip()
    key = _key(name, prompts)
    if key is None:
        return [], _no_such(name, settings, prompts)
    given = parts["value"].strip(_QUOTES)
    value = _value(given, prompts[key])
    if value is None:
        return [], f'The setting {_shown(key)} cannot be "{given}". {_range(prompts[key])}'
    return [Change(key, value, "user" if lasting else "session", message)], None


def _word(name: str) -> str:
    """Return a name as keys are written."""
    return name.lower().replace(" ", "_").replace("-", "_")


def _key(name: str, prompts: Mapping[str, Row]) -> str | None:
    """Return the key of a setting that the assistant may change: by its key, its last part or another word."""
    word = _word(name)
    matches = [key for key in prompts if word in (key, key.rpartition(".")[2])]
    return matches[0] if len(matches) == 1 else _ALIASES.get(word)


def _no_such(name: str, settings: Mapping[str, Any], prompts: Mapping[str, Row]) -> str:
    key = _word(name)
    if key in settings:
        return f"I may not change the setting {key} myself. Use setting_set('{key}', ...) to change it."
    known = ", ".join(map(_shown, prompts))
    return f'I have no setting "{name}", so nothing has changed. I can change these: {known}.'


def _value(text: str, definition: Row) -> str | float | None:
    """Read a value as the definition asks; None: it does not fit."""
    kind = definition["type"]
    if kind == "text":
        choices = definition["choices"]
        if choices:
            return next((choice for choice in choices if choice.lower() == text.lower()), None)
        return text if 0 < len(text) <= definition["high"] else None
    if kind == "boolean":
        return {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}.get(
            text.lower()
        )
    try:
        number = int(text) if kind == "integer" else float(text)
    except ValueError:
        return None
    return number if definition["low"] <= number <= definition["high"] else None


def _range(definition: Row) -> str:
    if definition["choices"]:
        return f"It can be {', '.join(definition['choices'])}."
    if definition["type"] in ("integer", "number"):
        return (
            f"It must be of type {definition['type']}, from {definition['low']:g} to {definition['high']:g}."
        )
    return f"It must be of type {definition['type']}."


def _shown(key: str) -> str:
    return key.replace("_", " ")
