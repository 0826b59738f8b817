"""What must not enter a model's weights: secrets and personal data, found by libraries kept for that."""

from __future__ import annotations

from collections.abc import Iterator

from mindful.errors import MissingPackageError
from mindful.pattern import IGNORECASE, linear

_EMAIL = linear(r"(?<![\w.+-])[\w.+-]++@[\w-]+\.[\w.-]+")
_ADDRESS = linear(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
_DIGITS = linear(r"\b\d(?:[ -]?\d){11,18}\b")
_IBAN = linear(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")
_SOCIAL = linear(r"\b\d{3}-\d{2}-\d{4}\b")
_TOLD = linear(
    r"\b(?:password|passphrase|passcode|pin(?: code| number)?|secret key|access key)\b[^.\n]{0,30}?(?:\bis\b|:|=)\s*\S",
    IGNORECASE,
)
"""A secret that is told in a sentence, which no library looks for."""
_LONGEST = 2000
"""Characters of a text that is looked through: the libraries take 100 ms for some four times as many."""
_REGION = "US"
"""Where numbers without a country's prefix are looked for."""


def reasons(text: str) -> Iterator[str]:
    """Yield why a text must not be trained on: secret, personal, or too long to be looked through."""
    if len(text) > _LONGEST:
        yield "too_long"
        return
    try:
        import phonenumbers
        from detect_secrets.core.scan import get_plugins
        from detect_secrets.settings import default_settings
        from stdnum import iban, luhn
    except ImportError as error:
        raise MissingPackageError(
            f"packages that find secrets and personal data are not installed: {error}",
            "Install pg-mindful[server] into the server's Python environment, and reconnect.",
        ) from None
    with default_settings():
        if _TOLD.search(text) or any(
            plugin.analyze_line(filename="", line=line, line_number=1)
            for plugin in get_plugins()
            for line in text.splitlines()
        ):
            yield "secret"
    if (
        any(pattern.search(text) for pattern in (_EMAIL, _ADDRESS, _SOCIAL))
        or any(luhn.is_valid("".join(filter(str.isdigit, found))) for found in _DIGITS.findall(text))
        or any(iban.is_valid(found) for found in _IBAN.findall(text))
        or any(phonenumbers.PhoneNumberMatcher(text, _REGION))
    ):
        yield "personal"
