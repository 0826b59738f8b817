"""Translation of grammars from GBNF, llama.cpp's notation, to Lark, the notation of llguidance.

Each character becomes its own terminal, because longer terminals are matched greedily, unlike in GBNF.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mindful.core.errors import ContextLengthError, InvalidParameterError
from mindful.core.pattern import DOTALL, VERBOSE, linear
from mindful.models.providers.packing import common_prefix

_LONGEST = 1 << 16
"""Bytes."""
_DEEPEST = 200
"""Levels of nested parentheses."""
_TOKEN = linear(
    r"""(?P<skip>\#[^\n]*|\s+) | (?P<head>[A-Za-z0-9_-]++)\s*::= | (?P<name>[A-Za-z0-9_-]+)
    | "(?P<literal>(?:\\.|[^"\\])*+)" | \[(?P<set>(?:\\.|[^\]\\])++)\] | (?P<any>\.)
    | (?P<times>[*+?]|\{\d+(?:,\d*)?\}) | (?P<mark>[()|]) | (?P<wrong>["\[].*|.)""",
    VERBOSE | DOTALL,
)
_NAME = linear(r"\w+")
_CLOSED = ("mark", ")")
_CHARACTER = linear(r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\(.)|(.)", DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}


def checked_grammar(grammar: str) -> str:
    """Return a grammar. Errors: 22023 (empty), 54000 (too long)."""
    if len(grammar.encode()) > _LONGEST:
        raise ContextLengthError(f"grammar has more than {_LONGEST} bytes", "Shorten it.")
    if not grammar.strip():
        raise InvalidParameterError("grammar is empty", 'Pass a rule, such as root ::= "yes" | "no".')
    return grammar


def lark(grammar: str) -> str:
    """Return a GBNF grammar in Lark. Error 22023: it has a mistake."""
    return _Reader(grammar).text()


class _Item(NamedTuple):
    """A symbol of a rule in Lark, with its literal or name in GBNF if it may be joined with others."""

    text: str
    literal: str | None = None
    name: str | None = None


class _Reader:
    def __init__(self, grammar: str) -> None:
        self._tokens = _tokens(grammar)
        self._token = next(self._tokens, ("end", ""))
        self._names: dict[str, str] = {}
        self._rules: dict[str, str] = {}
        while self._token[0] != "end":
            if self._token[0] != "head":
                raise _unreadable(f'a rule must begin instead of "{self._token[1][:40]}"')
            name = self._name(self._take())
            self._rules[name] = self._repeated(name, self._alternatives(0))
            if self._token == _CLOSED:
                raise _unreadable("a closing parenthesis has no opening one")
        self._check_names()

    def text(self) -> str:
        return "".join(f"{name}: {rule}\n" for name, rule in self._rules.items())

    def _take(self) -> str:
        taken, self._token = self._token[1], next(self._tokens, ("end", ""))
        return taken

    def _name(self, name: str) -> str:
        # Upper-case names are terminals in Lark.
        return self._names.setdefault(name, "start" if name == "root" else f"r{len(self._names)}")

    def _check_names(self) -> None:
        missing = [name for name, rule in self._names.items() if rule not in self._rules]
        if missing or "start" not in self._rules:
            raise _unreadable(f'it has no rule "{missing[0] if missing else "root"}"')

    def _alternatives(self, depth: int) -> list[list[_Item]]:
        if depth > _DEEPEST:
            raise InvalidParameterError(
                f"the grammar has more than {_DEEPEST} levels of parentheses",
                "Replace inner levels by rules.",
            )
        found: list[list[_Item]] = [[]]
        while self._token[0] not in ("head", "end") and self._token != _CLOSED:
            kind, text = self._token
            self._take()
            if text == "|" and kind == "mark":
                found.append([])
            elif kind == "mark":
                item = _Item(f"({self._joined(self._alternatives(depth + 1))})")
                if self._token != _CLOSED:
                    raise _unreadable("an opening parenthesis has no closing one")
                self._take()
                # Lark's parser fails on deeply nested parentheses.
                found[-1].append(_Item(self._rule(item.text)) if depth % 8 == 7 else item)
            elif kind == "times":
                if not found[-1]:
                    raise _unreadable(f"no symbol precedes {text}")
                found[-1][-1] = _Item(f"({found[-1][-1].text}){text}")
            else:
                found[-1].append(self._item(kind, text))
        return found

    def _item(self, kind: str, text: str) -> _Item:
        match kind:
            case "literal":
                literal = "".join(_characters(text))
                return _Item(_spelled(literal), literal=literal)
            case "set":
                return _Item(_set(text))
            case "any":
                return _Item("/(?s:.)/")
            case "name":
                name = self._name(text)
                return _Item(name, name=name)
            case _:
                raise _unreadable(f"{text} is not allowed here")

    def _repeated(self, name: str, alternatives: list[list[_Item]]) -> str:
        """Return a rule that refers to itself only at its end as a repetition, which is parsed faster."""
        again = [items[:-1] for items in alternatives if len(items) > 1 and items[-1].name == name]
        rest = [items for items in alternatives if not items or items[-1].name != name]
        inner = " ".join(item.text for items in (*again, *rest) for item in items)
        if not again or len(again) + len(rest) < len(alternatives) or name in _NAME.findall(inner):
            return self._joined(alternatives)
        return f"({self._joined(again)})* ({self._joined(rest)})" if rest else self._joined(alternatives)

    def _joined(self, alternatives: list[list[_Item]]) -> str:
        """Return alternatives. Literals among them share their beginnings."""
        words = [items[0].literal for items in alternatives if len(items) == 1]
        literals = list(dict.fromkeys(word for word in words if word is not None))
        others = [items for items in alternatives if len(items) != 1 or items[0].literal is None]
        parts = [" ".join(item.text for item in items) or '""' for items in others]
        return " | ".join([*parts, *self._shared(literals)])

    def _shared(self, words: Sequence[str]) -> Iterator[str]:
        heads: dict[str, list[str]] = {}
        for word in words:
            heads.setdefault(word[:1], []).append(word)
        for group in heads.values():
            low, high = min(group), max(group)
            prefix = low[: common_prefix(low, high)]
            if len(group) == 1:
                yield _spelled(prefix)
            else:
                rest = self._rule(" | ".join(self._shared([word[len(prefix) :] for word in group])))
                yield f"{_spelled(prefix)} {rest}"

    def _rule(self, text: str) -> str:
        name = f"p{len(self._rules)}_{len(self._names)}"
        self._rules[name] = text
        return name


def _tokens(grammar: str) -> Iterator[tuple[str, str]]:
    for token in _TOKEN.finditer(grammar):
        kind = str(token.lastgroup)
        if kind == "wrong":
            raise _unreadable(f"it has a mistake at {grammar[token.start() : token.start() + 40]}")
        if kind != "skip":
            yield kind, token[kind]


def _characters(text: str) -> Iterator[str]:
    for found in _CHARACTER.finditer(text):
        *numbers, escaped, plain = found.groups()
        number = next(filter(None, numbers), None)
        if number is not None and not (int(number, 16) < 0xD800 or 0xDFFF < int(number, 16) < 0x110000):
            raise _unreadable(f"{found[0]} is not a character")
        if number is not None:
            yield chr(int(number, 16))
        elif escaped is not None and escaped not in _ESCAPED:
            raise _unreadable(f"\\{escaped} is not an escape")
        else:
            yield plain if escaped is None else _ESCAPED[escaped]


def _spelled(literal: str) -> str:
    """Return a literal as terminals of one character each."""
    return (
        " ".join(f'"{one}"' if one.isascii() and one.isalnum() else f"/{_code(one)}/" for one in literal)
        or '""'
    )


def _code(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


def _set(text: str) -> str:
    negated = text.startswith("^")
    members = list(_CHARACTER.finditer(text.removeprefix("^")))
    parts, at = [], 0
    while at < len(members):
        low = high = "".join(_characters(members[at][0]))
        if at + 2 < len(members) and members[at + 1][0] == "-":
            high = "".join(_characters(members[at + 2][0]))
            at += 2
        if low > high:
            raise _unreadable(f"{members[at - 2][0]}-{members[at][0]} is not a range")
        parts.append(_code(low) if low == high else f"{_code(low)}-{_code(high)}")
        at += 1
    return f"/[{'^' if negated else ''}{''.join(parts)}]/"


def _unreadable(why: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"the grammar cannot be read: {why}",
        'It must be GBNF with a rule root, such as root ::= "yes" | "no".',
    )
