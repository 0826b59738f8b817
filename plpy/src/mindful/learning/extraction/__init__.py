"""Extraction of facts from texts: subject, relation, object and the quote that states them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

SINGLE = ("name", "age", "birthday", "lives_in", "works_at", "works_as", "marital_status")
"""Relations in which a subject has one object at a time. Favorites (favorite_book) are such relations too."""
OPPOSITES = {"likes": "dislikes", "dislikes": "likes"}
VOLATILE = ("plans", "age", "does", "studies")
"""Relations whose facts change within months. They are not trained on."""


class Statement(NamedTuple):
    """One fact that a text states."""

    subject: str
    relation: str
    object: str
    content: str
    quote: str
    """A literal part of the text."""
    confidence: float
    when: datetime | None = None
    """The day that the text names, if any."""
    cause: bool = False
    """Whether it is the reason for the statement before it."""


def is_single(subject: str, relation: str) -> bool:
    """Return whether a new object replaces the old one. It does not for "John's dog", which may be two dogs."""
    return "'s " not in subject and (relation in SINGLE or relation.startswith("favorite_"))
