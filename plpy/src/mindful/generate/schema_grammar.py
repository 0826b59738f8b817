"""Grammars in GBNF, llama.cpp's notation, made from JSON schemas. They accept only JSON of the schema's shape.

A grammar may accept less than its schema: strings without hexadecimal escapes, numbers without exponents, and only
members that the schema names. It accepts more for keywords without a counterpart (uniqueItems, multipleOf, not).
Therefore answers are validated against the schema too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from mindful.core.errors import ContextLengthError, InvalidParameterError
from mindful.core.pattern import linear

Schema = Mapping[str, Any] | bool
Valid = Callable[[Any, Mapping[str, Any]], bool]

_LARGEST = Decimal(10**15)
"""Bound of numbers whose schema has none, or a larger one."""
_DECIMALS = 6
_REPETITIONS = 512
"""llama.cpp unrolls repetitions. Only validation checks larger bounds."""
_MOST_RULES = 50_000
"""References with other keywords beside them can combine to many more parts than the schema has."""
_ASCII_OR_NOT = linear(r"([\x00-\x7f]+)|([^\x00-\x7f])")
_SHARED = {
    "space": '" "?',
    "char": r'[^"\\\x00-\x1f\x7f] | "\\" ["\\/bfnrt]',
    "string": r'"\"" char* "\""',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,14})',
    "number": f'integer ("." [0-9]{{1,{_DECIMALS}}})?',
    "member": 'string ":" space any',
    "object": '"{" (member ("," space member)*)? "}"',
    "array": '"[" (any ("," space any)*)? "]"',
    "any": 'object | array | string | number | "true" | "false" | "null"',
    "date": '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | [1-2] [0-9] | "3" [0-1])',
    "clock": '([0-1] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9]',
    "offset": '[+-] ([0-1] [0-9] | "2" [0-3]) ":" [0-5] [0-9]',
    "hex": "[0-9a-f]",
}
_FORMATS = {
    "date": {10: "date"},
    "time": {9: 'clock "Z"', 14: "clock offset"},
    "date-time": {20: 'date "T" clock "Z"', 25: 'date "T" clock offset'},
    "uuid": {36: 'hex{8} "-" hex{4} "-" hex{4} "-" hex{4} "-" hex{12}'},
}
"""Forms of a text by its length."""
_NOTES = (
    "$ref",
    "$defs",
    "definitions",
    "$schema",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
)
"""Keywords beside a reference that restrict no value."""
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_TYPE_OF_KEYWORD = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "minProperties": "object",
    "maxProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "maxItems": "array",
    "minLength": "string",
    "maxLength": "string",
    "format": "string",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
}


def grammar_of(schema: Mapping[str, Any], valid: Valid, check: Callable[[], None] = lambda: None) -> str:
    """Return the grammar of a schema. Errors: 22023 (no value can fit it, or it is too deep), 54000 (too large).

    Args:
        schema: a JSON schema whose references are local.
        valid: returns whether a value fits a part of the schema.
        check: looks for interrupts.
    """
    try:
        return _Grammar(schema, valid, check).text()
    except RecursionError:
        raise InvalidParameterError("json_schema is nested too deeply", "Use fewer levels.") from None


class _UnsatisfiableError(InvalidParameterError):
    """No value fits a part of the schema."""

    def __init__(self, part: Any) -> None:
        shown = json.dumps(part, ensure_ascii=False)
        super().__init__(f"no value can fit this part of json_schema: {shown[:200]}", "Relax or remove it.")


class _Grammar:
    def __init__(self, schema: Mapping[str, Any], valid: Valid, check: Callable[[], None]) -> None:
        self._schema = schema
        self._valid = valid
        self._check = check
        self._names: dict[str, str] = {}
        self._numbers = itertools.count()
        self._rules: dict[str, str] = {}
        self._root = self._rule(schema)

    def text(self) -> str:
        rules = {"root": self._root} | _SHARED | self._rules
        return "".join(f"{name} ::= {rule}\n" for name, rule in rules.items())

    def _rule(self, schema: Schema) -> str:
        """Return the name of a part's rule. Equal parts share a rule, so references may be recursive."""
        self._check()
        key = json.dumps(schema, sort_keys=True)
        if key not in self._names:
            if len(self._rules) > _MOST_RULES:
                raise ContextLengthError("json_schema has too many parts", "Simplify its references.")
            name = self._names[key] = self._part("")
            try:
                self._rules[name] = self._body(schema)
            except _UnsatisfiableError:
                del self._names[key], self._rules[name]
                raise
        return self._names[key]

    def _body(self, schema: Schema) -> str:
        if schema is True or schema == {}:
            return "any"
        if schema is False or isinstance(schema, bool):
            raise _UnsatisfiableError(schema)
        if "$ref" in schema:
            beside = {key: value for key, value in schema.items() if key not in _NOTES}
            return self._rule(_merged(beside or True, self._resolve(schema["$ref"])))
        if "const" in schema or "enum" in schema:
            return self._literals(schema)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                rest = {key: value for key, value in schema.items() if key != keyword}
                return self._union([_merged(rest, part) for part in schema[keyword]], schema)
        if "allOf" in schema:
            merged: Schema = {key: value for key, value in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                merged = _merged(merged, self._followed(part))
            return self._rule(merged)
        return self._typed(schema)

    def _typed(self, schema: Mapping[str, Any]) -> str:
        wanted = schema.get("type")
        if isinstance(wanted, list):
            return self._union([{**schema, "type": one} for one in wanted], schema)
        if wanted is None:
            implied = next((kind for key, kind in _TYPE_OF_KEYWORD.items() if key in schema), None)
            return "any" if implied is None else self._typed({**schema, "type": implied})
        match wanted:
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case "string":
                return self._string(schema)
            case "number":
                return self._number(schema, _decimals(schema))
            case "integer":
                return self._number(schema, 0)
            case "boolean":
                return '"true" | "false"'
            case _:
                return '"null"'

    def _resolve(self, reference: str) -> Schema:
        from urllib.parse import unquote  # few schemas have references

        if not reference.startswith("#/") and reference != "#":  # the name of an $anchor
            raise _no_part(reference)
        found: Any = self._schema
        for step in reference.removeprefix("#").split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise _no_part(reference) from None
        if not isinstance(found, (dict, bool)):
            raise InvalidParameterError(
                f"{reference} in json_schema is not a schema", "Refer to an object or a boolean."
            )
        return found

    def _followed(self, schema: Schema) -> Schema:
        return self._resolve(schema["$ref"]) if isinstance(schema, Mapping) and "$ref" in schema else schema

    def _union(self, parts: Sequence[Schema], whole: Schema) -> str:
        names = list(self._possible(parts))
        if not names:
            raise _UnsatisfiableError(whole)
        return " | ".join(dict.fromkeys(names))

    def _possible(self, parts: Sequence[Schema]) -> Iterator[str]:
        for part in parts:
            try:
                yield self._rule(part)
            except _UnsatisfiableError:
                continue

    def _literals(self, schema: Mapping[str, Any]) -> str:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        fitting = [value for value in values if self._valid(value, schema)]
        if not fitting:
            raise _UnsatisfiableError(schema)
        return " | ".join(dict.fromkeys(_literal(_json(value)) for value in fitting))

    def _object(self, schema: Mapping[str, Any]) -> str:
        additional = schema.get("additionalProperties", True)
        properties = dict(schema.get("properties", {}))
        required = set(schema.get("required", ()))
        properties |= {name: additional for name in schema.get("required", ()) if name not in properties}
        least, bound = _sizes(schema, "Properties")
        most = len(properties) if bound is None else bound
        if not properties:
            return self._map(additional, least, bound)
        pairs: dict[str, str] = {}
        for name, part in properties.items():
            try:
                pairs[name] = f'{_literal(_json(name))} ":" space {self._rule(part)}'
            except _UnsatisfiableError:
                if name in required:
                    raise
        required |= set([name for name in pairs if name not in required][: max(least - len(required), 0)])
        optional = [name for name in pairs if name not in required][: max(most - len(required), 0)]
        if len(required) > most or len(required) + len(optional) < least:
            raise _UnsatisfiableError(schema)
        kept = [name for name in pairs if name in required or name in optional]
        return f'"{{" {self._members([(pairs[name], name in required) for name in kept])} "}}"'

    def _members(self, members: Sequence[tuple[str, bool]]) -> str:
        """Return a rule for members in order, separated by commas. Members that are not required may be missing."""
        after = first = '""'  # the rest after a member, and without one before
        for pair, required in reversed(members):
            with_pair = f'"," space {pair} {after}', f"{pair} {after}"
            if required:
                after, first = (self._part(text) for text in with_pair)
            else:
                after, first = (
                    self._part(f"{text} | {other}")
                    for text, other in zip(with_pair, (after, first), strict=True)
                )
        return first

    def _part(self, body: str) -> str:
        name = f"r{next(self._numbers)}"
        self._rules[name] = body
        return name

    def _map(self, additional: Schema, least: int, most: int | None) -> str:
        if additional is False or most == 0:
            if least:
                raise _UnsatisfiableError({"additionalProperties": additional, "minProperties": least})
            return '"{" "}"'
        pair = self._part(f'string ":" space {self._rule(additional)}')
        return f'"{{" {_repeated(pair, least, most)} "}}"'

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = _sizes(schema, "Items")
        if most is not None and most < least:
            raise _UnsatisfiableError(schema)
        first = [self._rule(part) for part in schema.get("prefixItems", ())[:most]]
        rest, separator = schema.get("items", True), ' "," space '
        left = None if most is None else most - len(first)
        if rest is False or left == 0 or ("items" not in schema and first):
            if len(first) < least and rest is False:
                raise _UnsatisfiableError(schema)
            left = max(least - len(first), 0)
        if left == 0:
            return f'"[" {separator.join(first)} "]"'
        item = self._rule(rest)
        needed = max(least - len(first), 0)
        if not first:
            return f'"[" {_repeated(item, needed, left)} "]"'
        more = _times(f'("," space {item})', needed, left)
        return f'"[" {separator.join(first)} {more} "]"'

    def _string(self, schema: Mapping[str, Any]) -> str:
        least, most = _sizes(schema, "Length")
        forms = _FORMATS.get(schema.get("format", ""))
        fitting = [
            form
            for length, form in (forms or {}).items()
            if least <= length <= (length if most is None else most)
        ]
        if (most is not None and most < least) or (forms and not fitting):
            raise _UnsatisfiableError(schema)
        if fitting:
            return rf'"\"" ({" | ".join(fitting)}) "\""'
        return rf'"\"" {_times("char", least, most)} "\""'

    def _number(self, schema: Mapping[str, Any], decimals: int) -> str:
        low, high = _bounds(schema)
        if low is None and high is None:
            return "integer" if decimals == 0 else "number"
        forms = [form for places in range(decimals + 1) for form in _fixed(schema, places)]
        if not forms:
            raise _UnsatisfiableError(schema)
        return " | ".join(forms)


def _sizes(schema: Mapping[str, Any], what: str) -> tuple[int, int | None]:
    """Return the bounds of a size. JSON has integers such as 2.0 too."""
    most = schema.get(f"max{what}")
    return int(schema.get(f"min{what}", 0)), None if most is None else int(most)


def _no_part(reference: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"json_schema has no part {reference}",
        "Use local references to existing parts, such as #/$defs/name.",
    )


def _merged(one: Schema, other: Schema) -> Schema:
    """Return a schema of what fits both. Of keywords that cannot be joined it has the other's."""
    if isinstance(one, bool) or isinstance(other, bool):
        return other if one is True else one if other is True else False
    merged = {**one, **other}
    for key in one.keys() & other.keys():
        mine, theirs = one[key], other[key]
        if key in ("properties", "$defs", "definitions"):
            merged[key] = {**mine, **theirs}
        elif key == "required":
            merged[key] = sorted({*mine, *theirs})
        elif key in _LOWER:
            merged[key] = max(mine, theirs)
        elif key in _UPPER:
            merged[key] = min(mine, theirs)
        elif key == "type":
            merged[key] = _common_types(mine, theirs)
        elif key == "enum":
            merged[key] = [value for value in mine if value in theirs]
        if not merged[key] and key in ("type", "enum"):
            return False
    return merged


def _common_types(one: str | Sequence[str], other: str | Sequence[str]) -> list[str]:
    both = _types(one) & _types(other)
    return sorted(both - {"integer"} if "number" in both else both)


def _types(given: str | Sequence[str]) -> set[str]:
    types = {given} if isinstance(given, str) else {*given}
    return types | {"integer"} if "number" in types else types


def _bounds(schema: Mapping[str, Any]) -> tuple[Decimal | None, Decimal | None]:
    low = [Decimal(str(schema[key])) for key in ("minimum", "exclusiveMinimum") if key in schema]
    high = [Decimal(str(schema[key])) for key in ("maximum", "exclusiveMaximum") if key in schema]
    return max(low, default=None), min(high, default=None)


def _decimals(schema: Mapping[str, Any]) -> int:
    """Return the decimals of a bounded number: one more than its bounds have, and at least two."""
    bounds = [bound for bound in _bounds(schema) if bound is not None]
    exponents = [bound.normalize().as_tuple().exponent for bound in bounds]
    most = max((-exponent for exponent in exponents if isinstance(exponent, int)), default=0)
    return min(max(most + 1, 2), _DECIMALS)


def _fixed(schema: Mapping[str, Any], places: int) -> Iterator[str]:
    """Yield patterns of the numbers within a schema's bounds that have `places` decimals."""
    unit = Decimal(1).scaleb(-places)
    low, high = _bounds(schema)
    least = -_LARGEST if low is None or low < -_LARGEST else low
    most = _LARGEST if high is None or high > _LARGEST else high
    if least > most:
        raise _UnsatisfiableError(schema)
    start = int((least / unit).to_integral_value(ROUND_CEILING))
    end = int((most / unit).to_integral_value(ROUND_FLOOR))
    if "exclusiveMinimum" in schema and start * unit <= Decimal(str(schema["exclusiveMinimum"])):
        start += 1
    if "exclusiveMaximum" in schema and end * unit >= Decimal(str(schema["exclusiveMaximum"])):
        end -= 1
    yield from (f'"-" ({form})' for form in _digits(max(1, -end), -start, places))
    yield from _digits(max(0, start), end, places)


def _digits(start: int, end: int, places: int) -> Iterator[str]:
    """Yield patterns of the integers from start to end, by length, with a point before the last `places` digits.

    There are none if start is larger than end.
    """
    for length in range(max(len(str(start)), places + 1), max(len(str(end)), places + 1) + 1):
        low = max(start, 10 ** (length - 1) if length > places + 1 else 0)
        high = min(end, 10**length - 1)
        if low <= high:
            yield _between(f"{low:0{length}}", f"{high:0{length}}", places)


def _between(low: str, high: str, places: int) -> str:
    """Return a pattern of the digit strings from low to high, which have the same length."""
    if not low:
        return ""
    point = '"." ' if places and len(low) == places else ""
    if set(low) == {"0"} and set(high) == {"9"}:
        whole = len(low) - places if places and len(low) > places else 0
        return f'[0-9]{{{whole}}} "." [0-9]{{{places}}}' if whole else f"{point}[0-9]{{{len(low)}}}"
    if low[0] == high[0]:
        return f'{point}"{low[0]}" {_between(low[1:], high[1:], places)}'
    rest = len(low) - 1
    forms = [(low[0], low[1:], "9" * rest), (high[0], "0" * rest, high[1:])]
    if int(high[0]) - int(low[0]) > 1:
        middle = f"{int(low[0]) + 1}-{int(high[0]) - 1}"
        forms.insert(1, (middle, "0" * rest, "9" * rest))
    written = (f"[{digits}] {_between(least, most, places)}" for digits, least, most in forms)
    return f"{point}({' | '.join(written)})"


def _repeated(item: str, least: int, most: int | None) -> str:
    """Return a rule for items separated by commas."""
    more = _times(f'("," space {item})', max(least - 1, 0), None if most is None else most - 1)
    return f"{item} {more}" if least else f"({item} {more})?"


def _times(item: str, least: int, most: int | None) -> str:
    least = min(least, _REPETITIONS)
    if most is None or most > _REPETITIONS:
        return f"{item}{{{least},}}" if least else f"{item}*"
    return f"{item}{{{least},{most}}}" if most else ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _literal(text: str) -> str:
    """Return a rule for literal JSON. Escapes are allowed too, because a vocabulary may lack a character's bytes."""
    return " ".join(
        _quoted(plain) if plain else f"({_quoted(other)} | {_quoted(json.dumps(other)[1:-1])})"
        for plain, other in _ASCII_OR_NOT.findall(text)
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\x7f", "\\x7f")
    return f'"{escaped}"'
