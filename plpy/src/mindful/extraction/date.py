"""The day that a text speaks of, where it says so by one of a few sure phrases."""

from __future__ import annotations

from datetime import datetime

from mindful.pattern import IGNORECASE, Short, linear

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


def dated(text: str, said: datetime | None) -> datetime | None:
    """Return the day that a text names, as seen from when it was said; weeks and months are no days."""
    found = _PHRASE.search(text)
    if found is None:
        return None
    year = found["y1"] or found["y2"]
    if year:
        try:
            return datetime(
                int(year),
                _MONTHS.index((found["m1"] or found["m2"]).lower()) + 1,
                int(found["d1"] or found["d2"]),
            )
        except ValueError:  # 31 June
            return None
    if said is None:
        return None
    from dateutil.relativedelta import relativedelta, weekday

    if found["day"]:
        step = relativedelta(days=_OFFSETS.get(found["day"].lower(), 0))
    elif found["n"]:
        number = found["n"].lower()
        step = relativedelta(days=-(int(number) if number.isdigit() else _NUMBERS.get(number, 1)))
    else:
        past = found["side"].lower() in ("last", "this past")
        day = weekday(_DAYS.index(found["weekday"].lower()))
        step = relativedelta(days=-1, weekday=day(-1)) if past else relativedelta(days=1, weekday=day(+1))
    try:
        found_day: datetime = said + step
    except OverflowError:  # the day after the last one
        return None
    return found_day


RELATIVE = Short(
    r"\b(?:yesterday|today|tonight|tomorrow|(?:last|next|this|this past|this coming) (?:\w+)|"
    r"(?:few |\w+ )?(?:days?|weeks?|months?|"
    r"years?) ago|now|recently|currently|soon|lately)\b(?!.*\(\d{4}-\d\d-\d\d\))",
    2000,
    IGNORECASE,
)
"""Times that a reader cannot place without knowing when it was said."""
