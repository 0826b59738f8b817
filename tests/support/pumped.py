"""Texts that make a regular expression slow, read from the expression: each repeat of it many times, then a mismatch.

What a pattern needs before its costly part, such as "No, it is", stands in no list of hostile texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

_CHARACTERS = "a1 A.,-_'é\n!?:/@<[{(\"\\`|&;#*=+%$~^"
_MISMATCHES = ("", "?", "\0", "!", " ", "é")
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


def pumped(source: str, flags: int, size: int) -> Iterator[str]:
    """Yield texts of about `size` characters for a pattern."""
    seen = set()
    for full in (False, True):
        for before, again in _repeats(_parser.parse(source, flags), "", full):
            if (before, again) not in seen:
                seen.add((before, again))
                text = (before + again * (size // len(again) + 1))[:size]
                yield from (text[: size - len(mismatch)] + mismatch for mismatch in _MISMATCHES)


def _repeats(nodes: Iterable[Any], before: str, full: bool) -> Iterator[tuple[str, str]]:
    """Yield each repeat as a text that leads to it, and one that it matches once. `full` includes optional parts."""
    for node in nodes:
        kind, value = node
        if kind in _REPEATS and value[1] > 1 and (again := _sample(value[2], True)):
            yield before, again
            yield before + again + " ", again
        for inner in _within(node):
            yield from _repeats(inner, before, full)
        before += _sample([node], full)


def _within(node: Any) -> list[Iterable[Any]]:
    kind, value = node
    if kind in _REPEATS:
        return [value[2]]
    if kind is op.BRANCH:
        return list(value[1])
    if kind is op.SUBPATTERN:
        return [value[3]]
    if kind is op.ATOMIC_GROUP:
        return [value]
    return [value[1]] if kind in (op.ASSERT, op.ASSERT_NOT) else []


def _sample(nodes: Iterable[Any], full: bool) -> str:
    """Return a text that the nodes match, apart from what they look at before and behind."""
    return "".join(_one(kind, value, full) for kind, value in nodes)


def _one(kind: Any, value: Any, full: bool) -> str:
    if kind is op.LITERAL:
        return chr(value)
    if kind is op.ANY:
        return "a"
    if kind in (op.NOT_LITERAL, op.IN):
        return _member(kind, value)
    if kind in _REPEATS:
        return _sample(value[2], full) * max(int(value[0]), int(full))
    if kind is op.BRANCH:
        return _sample(value[1][0], full)
    if kind is op.SUBPATTERN:
        return _sample(value[3], full)
    return _sample(value, full) if kind is op.ATOMIC_GROUP else ""


def _member(kind: Any, value: Any) -> str:
    """Return a character that a class matches."""
    if kind is op.NOT_LITERAL:
        return "a" if ord("a") != value else "1"
    first = value[1] if value[0][0] is op.NEGATE else value[0]
    common = next((one for one in _CHARACTERS if _is_in(one, value)), None)
    return common or chr(first[1][0] if first[0] is op.RANGE else first[1])


def _is_in(one: str, items: list[Any]) -> bool:
    negated = items[0][0] is op.NEGATE
    return bool(negated != any(_fits(one, item) for item in items if item[0] is not op.NEGATE))


def _fits(one: str, item: Any) -> bool:
    kind, value = item
    if kind is op.LITERAL:
        return bool(ord(one) == value)
    if kind is op.RANGE:
        return bool(value[0] <= ord(one) <= value[1])
    escape = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}[
        str(value).removeprefix("CATEGORY_").removeprefix("NOT_")
    ]
    return (re.match(rf"\{escape}", one) is not None) != ("NOT_" in str(value))
