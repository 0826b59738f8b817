"""Replies that need no model: to thanks, and what the server's clock tells, of which a model knows nothing.

The rules are of English.
"""

from __future__ import annotations

from typing import NamedTuple

from mindful.core.pattern import IGNORECASE, Short
from mindful.core.ports import Database

_LONGEST = 80
_OPENS = (
    r"^\W*(?:(?:hi|hey|hello|ok|okay|so|and|oh|ah|no|great|perfect|lovely|brilliant|nice|cool|right)\W+){0,3}"
)
_PLEASE = r"(?:please |(?:can|could|would) you (?:please )?(?:tell|remind) me |tell me |do you know )?"
_NOW = r"(?: (?:it is|it's|is it))?(?: today| now| right now| please)*\W*$"
_THANKS = Short(
    rf"{_OPENS}(?:(?:many )?thanks|thank you|thank u|thx|ty|cheers|ta|much appreciated)"
    r"(?:\W+(?:so|very|much|a lot|a million|a bunch|again|anyway|you|mate|all|then|everyone|bye|"
    r"for (?:that|this|the \w+|your \w+|letting me know|telling me|reminding me|everything)))*\W*$",
    _LONGEST,
    IGNORECASE,
)
_DATE = Short(
    rf"{_OPENS}{_PLEASE}(?:(?:what|which) (?:date|day|weekday|day of the week|month|year)(?: is (?:it|today))?|"
    r"what(?:['\u2019]?s| is) (?:the (?:current |exact )?(?:date|day|month|year)|today(?:['\u2019]?s date)?)|"
    rf"(?:the |today['\u2019]?s )(?:current )?date){_NOW}",
    _LONGEST,
    IGNORECASE,
)
_TIME = Short(
    rf"{_OPENS}{_PLEASE}(?:what time(?: is it)?|what(?:['\u2019]?s| is) the (?:current |exact )?time|"
    rf"the (?:current )?time){_NOW}",
    _LONGEST,
    IGNORECASE,
)
_TODAY = '"Today is "FMDay, FMDD FMMonth YYYY"."'
_CLOCK = '"It is "HH24:MI" ({zone})."'
"""Templates of to_char."""


class Fixed(NamedTuple):
    """A reply without the model, the decision's action and its reason."""

    text: str
    action: str
    reason: str


def fixed(db: Database, message: str) -> Fixed | None:
    """Return the reply to thanks, or to a question for the date or the time; None for another message."""
    if _THANKS.search(message):
        return Fixed("You are welcome.", "uncalibrated", "thanks need no model")
    form = _TODAY if _DATE.search(message) else _CLOCK if _TIME.search(message) else None
    if form is None:
        return None
    row = db.one(
        "select pg_catalog.to_char(pg_catalog.now(), $1) as told, pg_catalog.current_setting('TimeZone') as zone",
        ("text",),
        (form,),
    )
    return Fixed(
        row["told"].format(zone=row["zone"]), "uncalibrated", "the server's clock tells the date and the time"
    )
