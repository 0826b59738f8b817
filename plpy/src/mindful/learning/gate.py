"""Detection of secrets and personal data, which must not be trained on. Libraries find most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mindful.core.extra import extra
from mindful.core.pattern import DOTALL, IGNORECASE, linear

_EMAIL = linear(r"(?<![\w.+-])[\w.+-]++@[\w-]+\.[\w.-]+")
_ADDRESS = linear(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
_DIGITS = linear(r"\b\d(?:[ -]?\d){11,18}\b")
_IBAN = linear(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")
_SOCIAL = linear(r"\b\d{3}-\d{2}-\d{4}\b")
_STATED_SECRET = linear(
    r"\b(?:password|passphrase|passcode|pin(?: code| number)?|secret key|access key)\b"
    r"[^.\n]{0,30}?(?:\bis\b|:|=)\s*(\S)",
    IGNORECASE,
)
"""A secret in a sentence. No library detects these."""
_PRIVATE_KEY = linear(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+(?:-----END [A-Z ]{0,40}-----)?", DOTALL)
_SERVICE_KEY = linear(r"\bmk-[0-9a-f]{64}\b")
_LONGEST = 2000
"""Maximum of characters. The libraries take 100 ms for about four times as many and cannot be cancelled."""
_REGION = "US"
"""The region of phone numbers without a country code."""


class Finding(NamedTuple):
    """A part of a text, and what it is: secret, or a kind of personal data."""

    first: int
    last: int
    kind: str


def reasons(text: str) -> Iterator[str]:
    """Yield why a text must not be trained on: secret, personal or too_long."""
    if len(text) > _LONGEST:
        yield "too_long"
        return
    if any(True for _ in _secrets(text)):
        yield "secret"
    if any(True for _ in _personal(text)):
        yield "personal"


def redacted(text: str) -> str:
    """Return the text with [KIND] in place of each secret and each piece of personal data."""
    shown, at = [], 0
    for first, last, kind in sorted(_findings(text)):
        if last > at:
            if first >= at:
                shown += [text[at:first], f"[{kind}]"]
            at = last
    return "".join([*shown, text[at:]])


def _findings(text: str) -> Iterator[Finding]:
    """Find in lines, of which long ones are read in parts that overlap."""
    yield from (Finding(*found.span(), "secret") for found in _PRIVATE_KEY.finditer(text))
    start = 0
    for line in text.splitlines(keepends=True):
        for at in range(0, len(line), _LONGEST // 2):
            part = line[at : at + _LONGEST]
            for first, last, kind in (*_secrets(part), *_personal(part)):
                yield Finding(start + at + first, start + at + last, kind)
        start += len(line)


def _secrets(text: str) -> Iterator[Finding]:
    """Find secrets; one that a sentence states lasts to the end of its line."""
    with extra("learning"):
        from detect_secrets.core.scan import get_plugins  # type: ignore[attr-defined, unused-ignore]
        from detect_secrets.settings import default_settings
    for found in _STATED_SECRET.finditer(text):
        end = text.find("\n", found.start(1))
        yield Finding(found.start(1), len(text) if end < 0 else end, "secret")
    for pattern in (_PRIVATE_KEY, _SERVICE_KEY):
        yield from (Finding(*found.span(), "secret") for found in pattern.finditer(text))
    with default_settings():
        lines = text.splitlines()
        values = {
            secret.secret_value
            for plugin in get_plugins()
            for line in lines
            for secret in plugin.analyze_line(filename="", line=line, line_number=1)
        }
    for value in filter(None, values):
        at = text.find(value)
        while at >= 0:
            yield Finding(at, at + len(value), "secret")
            at = text.find(value, at + len(value))


def _personal(text: str) -> Iterator[Finding]:
    with extra("learning"):
        import phonenumbers
        from stdnum import iban, luhn
    for kind, pattern in (("email", _EMAIL), ("address", _ADDRESS), ("social", _SOCIAL)):
        yield from (Finding(*found.span(), kind) for found in pattern.finditer(text))
    for found in _DIGITS.finditer(text):
        if luhn.is_valid("".join(filter(str.isdigit, found[0]))):
            yield Finding(*found.span(), "card")
    for found in _IBAN.finditer(text):
        if iban.is_valid(found[0]):
            yield Finding(*found.span(), "account")
    for number in phonenumbers.PhoneNumberMatcher(text, _REGION):
        yield Finding(number.start, number.end, "phone")
