"""What texts state: facts with a subject, a relation, an object, and the words of the text that say so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

SINGLE = ("name", "age", "birthday", "lives_in", "works_at", "works_as", "marital_status")
"""Relations in which a subject has one object at a time; so are favorites (favorite_book)."""
OPPOSITES = {"likes": "dislikes", "dislikes": "likes"}
VOLATILE = ("plans", "event", "age", "does", "studies")
"""Relations whose facts change within months: they belong in memory, not in a model's weights."""


@dataclass(frozen=True)
class Statement:
    """One fact that a text states."""

    subject: str
    relation: str
    object: str
    content: str
    quote: str
    """Words of the text, as they stand there."""
    confidence: float
    when: datetime | None = None
    """The day it speaks of, where the text names one."""
    cause: bool = False
    """Whether it is the reason of the statement before it."""


def is_single(subject: str, relation: str) -> bool:
    """Tell whether a new object takes an old one's place; "John's dog" may be two dogs."""
    return "'s " not in subject and (relation in SINGLE or relation.startswith("favorite_"))
