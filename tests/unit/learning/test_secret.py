"""Secrets and personal data are found wherever they stand, and hidden as such."""

from __future__ import annotations

import pytest
from mindful.learning.gate import reasons, redacted

AWS = "AKIAIOSFODNN7EXAMPLE"
"""The example of Amazon's own documentation, which a library knows as a key."""
PRIVATE = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nowIB\n-----END RSA PRIVATE KEY-----"

HIDDEN = [
    ("Write to ana@example.com today.", "Write to [email] today.", "personal"),
    ("Server 10.0.0.12 is down.", "Server [address] is down.", "personal"),
    ("Her number is 123-45-6789 there.", "Her number is [social] there.", "personal"),
    ("Card 4111 1111 1111 1111, please.", "Card [card], please.", "personal"),
    ("Pay to DE89 3704 0044 0532 0130 00 now.", "Pay to [account] now.", "personal"),
    ("Call +49 30 901820 now.", "Call [phone] now.", "personal"),
    ("The password is hunter 2.", "The password is [secret]", "secret"),
    ("PIN: 1234", "PIN: [secret]", "secret"),
    (f"Use {AWS} and then {AWS} again.", "Use [secret] and then [secret] again.", "secret"),
    (f"Use mk-{'0a' * 32} there.", "Use [secret] there.", "secret"),
    (f"Here: {PRIVATE} ends.", "Here: [secret] ends.", "secret"),
]


@pytest.mark.parametrize(("text", "shown", "reason"), HIDDEN)
def test_what_must_not_be_learned_is_found_and_hidden(text: str, shown: str, reason: str) -> None:
    assert redacted(text) == shown
    assert list(reasons(text)) == [reason]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ana likes olives.",
        "Card 4111 1111 1111 1112, please.",  # its last digit is wrong
        "Pay to DE89 3704 0044 0532 0130 02 now.",
        "Version 1.2.3 is out.",
    ],
)
def test_other_texts_are_left_as_they_are(text: str) -> None:
    assert redacted(text) == text
    assert list(reasons(text)) == []


def test_each_line_is_hidden_at_its_place() -> None:
    text = "".join(f"{number}. {one}\n" for number, (one, _, _) in enumerate(HIDDEN[:-1]))
    assert redacted(text) == "".join(f"{number}. {one}\n" for number, (_, one, _) in enumerate(HIDDEN[:-1]))


@pytest.mark.parametrize("before", [0, 985, 990, 1000, 1990, 2500])
def test_long_lines_are_read_to_their_end(before: int) -> None:
    filling = "word " * (before // 5)
    text = f"{filling}ana@example.com {'word ' * 500}bob@example.com"
    assert redacted(text) == f"{filling}[email] {'word ' * 500}[email]"


def test_both_reasons_are_named() -> None:
    assert list(reasons("The password is hunter2, and mine is ana@example.com")) == ["secret", "personal"]
