"""The questions of the package, whose answers give a model its first ranking.

`facts.json` has facts of common knowledge, which a model answers by itself, and forms of facts about invented people
and things, which it can only answer from the memories in the prompt. All of it was written for this project.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

from mindful.confidence.gold import Gold
from mindful.core.jsontext import loads

_TOLD = 14
"""Questions of each form of a personal fact."""
_UNTOLD = 4
"""Of so many questions about personal facts, the memories of one lack the answer."""


@functools.cache
def questions() -> Sequence[Gold]:
    """Return all questions, those of common knowledge first."""
    facts = loads(resources.files("mindful.confidence").joinpath("facts.json").read_text())
    found = [*_general(facts), *_arithmetic(facts["arithmetic"]), *_personal(facts)]
    return [Gold(at, *one) for at, one in enumerate(found, start=1)]


_Fields = tuple[str, Sequence[str], str, Sequence[str]]


def _general(facts: Mapping[str, Any]) -> Iterator[_Fields]:
    for group in facts["general"]:
        for at, row in enumerate(group["rows"]):
            subject, *answers = row.split("|")
            form = group["questions"][at % len(group["questions"])]
            yield form.format(subject), answers, "", ()


def _arithmetic(group: Mapping[str, Any]) -> Iterator[_Fields]:
    for row in group["rows"]:
        first, second = map(int, row.split("|"))
        results = (first + second, first * second, first - second)
        for form, result in zip(group["questions"], results, strict=True):
            yield form.format(first, second), [str(result)], "", ()


def _personal(facts: Mapping[str, Any]) -> Iterator[_Fields]:
    """Ask about facts in other words than the memory's. The other memories are about another, or other facts."""
    kinds = facts["personal"]
    for number, kind in enumerate(kinds):
        subjects = facts[kind["subject"]]
        for at in range(_TOLD):
            subject, another = (subjects[(at + number + shift) % len(subjects)] for shift in (0, 3))
            beside = next(
                one
                for one in (*kinds[number + 1 :], *kinds)
                if one["subject"] == kind["subject"] and one is not kind
            )
            is_told = (at + number) % _UNTOLD > 0
            memories = [
                _statement(kind, subject if is_told else subjects[(at + number + 5) % len(subjects)], at),
                _statement(kind, another, at + 1),
                _statement(beside, subject, at),
            ]
            turn = at % len(memories)
            question = kind["questions"][at // 2 % 2].format(subject)
            answers = [_value(kind, at)] if is_told else []
            yield question, answers, f"facts {number}", [*memories[turn:], *memories[:turn]]


def _statement(kind: Mapping[str, Any], subject: str, at: int) -> str:
    form: str = kind["statements"][at % 2]
    return form.format(subject, _value(kind, at))


def _value(kind: Mapping[str, Any], at: int) -> str:
    value: str = kind["values"][at % len(kind["values"])]
    return value
