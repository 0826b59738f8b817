"""Grammars that users write (GBNF), checked for what llama.cpp could not bear.

It reads them by recursion and follows all their branches at once, neither of which can be interrupted.
"""

from __future__ import annotations

import functools
import re

from mindful.errors import ContextLengthError, InvalidParameterError

_LONGEST = 1 << 16
"""Bytes."""
_DEEPEST = 200
"""Parentheses within each other."""
_LARGEST = 100_000
"""Symbols of a grammar in which every reference that leads nowhere back is written out."""
_TOKEN = re.compile(
    r"""(?P<skip>\#[^\n]*|\s+) | (?P<head>[\w-]+)\s*::= | (?P<name>[A-Za-z0-9_-]+)
    | (?P<symbol>"(?:\\.|[^"\\])*" | \[(?:\\.|[^\]\\])*\] | \{[\d,\s]*\} | .)""",
    re.VERBOSE | re.DOTALL,
)


def checked(grammar: str) -> str:
    """Return a grammar that llama.cpp may be given: it finds the mistakes, this finds what would take it for ever."""
    if len(grammar.encode()) > _LONGEST:
        raise ContextLengthError(f"grammar has more than {_LONGEST} bytes", "Shorten it.")
    if not grammar.strip():
        raise InvalidParameterError("grammar is empty", 'Give a rule, such as root ::= "yes" | "no".')
    rules = _rules(grammar)
    if _size("root", rules) > _LARGEST:
        raise InvalidParameterError(
            "the grammar has too many branches", "Let fewer alternatives refer to the same rules."
        )
    return grammar


def _rules(grammar: str) -> dict[str, list[str]]:
    """List the symbols of each rule: names of rules, and whatever else stands there."""
    rules: dict[str, list[str]] = {}
    rule: list[str] = []
    depth = 0
    for token in _TOKEN.finditer(grammar):
        kind, text = token.lastgroup, token.group().strip()
        if kind == "head":
            rule = rules.setdefault(str(token["head"]), [])
        elif kind != "skip":
            depth += (text == "(") - (text == ")")
            if depth > _DEEPEST:
                raise InvalidParameterError(
                    f"the grammar has more than {_DEEPEST} parentheses within each other",
                    "Make rules of them.",
                )
            rule.append(text)
    return rules


def _size(root: str, rules: dict[str, list[str]]) -> int:
    """Count the symbols of the grammar with every reference but those that lead back written out."""
    above: set[str] = set()

    @functools.cache
    def size(name: str) -> int:
        above.add(name)
        total = sum(1 if part in above or part not in rules else size(part) for part in rules[name])
        above.discard(name)
        return max(total, 1)

    try:
        return size(root) if root in rules else 0
    except RecursionError:
        return _LARGEST + 1
