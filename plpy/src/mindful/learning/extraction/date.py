"""The day that a text names by one of a few unambiguous phrases."""

from __future__ import annotations

from datetime import datetime

from mindful.core.extra import extra
from mindful.core.pattern import IGNORECASE, Short, linear

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_NUMBERS = {
    word: at
    for at, word in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"), 1)
}
_PHRASE = linear(
    rf"\b(?P<day>yesterday|last night|today|tonight|this morning|tomorrow)\b"
    rf"|\b(?P<n>a|\d{{1,3}}|{'|'.join(_NUMBERS)}) days? ago\b"
    rf"|\b(?P<side>last|next|this past|this coming) (?P<weekday>{'|'.join(_DAYS)})\b"
    rf"|\b(?:on )?(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<m1>{'|'.join(_MONTHS)}),? (?P<y1>\d{{4}})\b"
    rf"|\b(?P<m2>{'|'.join(_MONTHS)}) (?P<d2>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y2>\d{{4}})\b",
    IGNORECASE,
)
_OFFSETS = {"yesterday": -1, "last night": -1, "tomorrow": 1}


def dated(text: str, written_at: datetime | None) -> datetime | None:
    """Return the day that a text names, relative to when it was written, or None for weeks and months."""
    match = _PHRASE.search(text)
    if match is None:
        return None
    year = match["y1"] or match["y2"]
    if year:
        try:
            return datetime(
                int(year),
                _MONTHS.index((match["m1"] or match["m2"]).lower()) + 1,
                int(match["d1"] or match["d2"]),
            )
        except ValueError:  # 31 June
            return None
    if written_at is None:
        return None
    with extra("learning"):
        from dateutil.relativedelta import relativedelta, weekday

    if match["day"]:
        step = relativedelta(days=_OFFSETS.get(match["day"].lower(), 0))
    elif match["n"]:
        number = match["n"].lower()
        step = relativedelta(days=-(int(number) if number.isdigit() else _NUMBERS.get(number, 1)))
    else:
        past = match["side"].lower() in ("last", "this past")
        day = weekday(_DAYS.index(match["weekday"].lower()))
        step = relativedelta(days=-1, weekday=day(-1)) if past else relativedelta(days=1, weekday=day(+1))
    try:
        named: datetime = written_at + step
    except OverflowError:  # after the last day of the calendar
        return None
    return named


RELATIVE = Short(
    r"\b(?:yesterday|today|tonight|tomorrow|(?:last|next|this|this past|this coming) (?:\w+)|"
    r"(?:few |\w+ )?(?:days?|weeks?|months?|"
    r"years?) ago|now|recently|currently|soon|lately)\b(?!.*\(\d{4}-\d\d-\d\d\))",
    2000,
    IGNORECASE,
)
"""Times that depend on when the text was written."""
