"""Detection of secrets and personal data, which must not be trained on. Libraries find most of them."""

from __future__ import annotations

from collections.abc import Iterator

from mindful.core.extra import extra
from mindful.core.pattern import IGNORECASE, linear

_EMAIL = linear(r"(?<![\w.+-])[\w.+-]++@[\w-]+\.[\w.-]+")
_ADDRESS = linear(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
_DIGITS = linear(r"\b\d(?:[ -]?\d){11,18}\b")
_IBAN = linear(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")
_SOCIAL = linear(r"\b\d{3}-\d{2}-\d{4}\b")
_STATED_SECRET = linear(
    r"\b(?:password|passphrase|passcode|pin(?: code| number)?|secret key|access key)\b[^.\n]{0,30}?(?:\bis\b|:|=)\s*\S",
    IGNORECASE,
)
"""A secret in a sentence. No library detects these."""
_LONGEST = 2000
"""Maximum of characters. The libraries take 100 ms for about four times as many and cannot be cancelled."""
_REGION = "US"
"""The region of phone numbers without a country code."""


def reasons(text: str) -> Iterator[str]:
    """Yield why a text must not be trained on: secret, personal or too_long."""
    if len(text) > _LONGEST:
        yield "too_long"
        return
    with extra("learning"):
        import phonenumbers
        from detect_secrets.core.scan import get_plugins
        from detect_secrets.settings import default_settings
        from stdnum import iban, luhn
    with default_settings():
        if _STATED_SECRET.search(text) or any(
            plugin.analyze_line(filename="", line=line, line_number=1)
            for plugin in get_plugins()
            for line in text.splitlines()
        ):
            yield "secret"
    if (
        any(pattern.search(text) for pattern in (_EMAIL, _ADDRESS, _SOCIAL))
        or any(luhn.is_valid("".join(filter(str.isdigit, digits))) for digits in _DIGITS.findall(text))
        or any(iban.is_valid(number) for number in _IBAN.findall(text))
        or any(phonenumbers.PhoneNumberMatcher(text, _REGION))
    ):
        yield "personal"
