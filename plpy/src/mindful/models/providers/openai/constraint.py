"""Schemas and grammars for servers: what may be sent, and whether the answer keeps to it.

llama.cpp's own grammars have no bound: an ambiguous one stops the server for all. Its build with llguidance bounds each
step, but gives up without an error. So the answer is read here by the same grammar.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mindful.core.errors import ContextLengthError, MissingPackageError
from mindful.core.ports import Interrupts, Sampling

if TYPE_CHECKING:
    from mindful.models.providers.guide import Guide, Guides

_LARGEST = 1000
"""Rules and levels of parentheses of a grammar. llguidance reads rules recursively: 3,000 levels end the server."""
_MOST_ALTERNATIVES = 64
_MOST_REPETITIONS = 1000
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems")
_CHOICES = ("anyOf", "oneOf")
_SIMPLIFY = "Simplify the grammar or json_schema. Let alternatives begin with different characters."


class Constraint:
    """What one answer is held to."""

    def __init__(self, body: dict[str, Any], guide: Guide | None = None) -> None:
        self.body = body
        """The part of the request."""
        self.watches = guide is not None
        """Whether `take` can end the answer."""
        self._guide = guide

    def take(self, data: bytes) -> None:
        """Read a part of the answer. Error 54000: the server left the grammar."""
        if self._guide is None:
            return
        for byte in data:
            if not self._guide.accept(byte):
                raise ContextLengthError(
                    "the grammar is too ambiguous for the text that the server generated so far", _SIMPLIFY
                )


class Constraints:
    """Makes the constraints of one model's answers."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._dialect = str(options["server"])
        self._bounded = bool(options.get("llguidance", False))
        self._trusted = bool(options.get("grammars", False))
        self._guides: Guides | None = None

    def of(self, sampling: Sampling, interrupts: Interrupts) -> Constraint:
        """Make the constraint of an answer. Errors: 0A000 (it could stop the server), 22023, 54000 (too large)."""
        if sampling.grammar is None:
            return Constraint({})
        if self._dialect in ("llama.cpp", "llama-cpp-python"):
            return self._grammar(sampling, interrupts)
        if sampling.schema is None:
            raise MissingPackageError(
                "the server takes no grammar", "Use json_schema, or a model of llama.cpp's server."
            )
        schema = {"name": "answer", "schema": sampling.schema, "strict": True}
        return Constraint({"response_format": {"type": "json_schema", "json_schema": schema}})

    def _grammar(self, sampling: Sampling, interrupts: Interrupts) -> Constraint:
        assert sampling.grammar is not None
        from mindful.models.gbnf import lark  # few calls have a grammar

        text = lark(sampling.grammar)
        if self._bounded:
            if text.count("\n") + _depths(text) > _LARGEST:
                raise ContextLengthError(
                    f"the grammar has more than {_LARGEST} rules and levels of parentheses", _SIMPLIFY
                )
            guide = self._made().guide(sampling.grammar, interrupts)
            return Constraint({"grammar": f"%llguidance {{}}\n{text}"}, guide)
        if not self._trusted and (sampling.schema is None or not is_plain(sampling.schema)):
            what = "a user's grammar" if sampling.schema is None else "a json_schema with many alternatives"
            raise MissingPackageError(
                f"{what} is not sent to this server: a hostile one would stop it for all connections",
                "Use a simpler json_schema, or a model of mindful engine. If all users are trusted, an administrator "
                "can set the option grammars to true.",
            )
        # llama.cpp's own parser ends the server by a rule that only refers to itself.
        self._made().guide(sampling.grammar, interrupts)
        return Constraint({"grammar": sampling.grammar})

    def _made(self) -> Guides:
        if self._guides is None:
            from mindful.models.providers.guide import Guides  # imports numpy

            self._guides = Guides(_Bytes())
        return self._guides


def is_plain(schema: Any) -> bool:
    """Return whether llama.cpp's own grammar of a schema has few alternatives at once, whatever the answer."""
    nodes = list(_nodes(schema))
    chooses = any(key in node for node in nodes for key in _CHOICES)
    refers = any("$ref" in node for node in nodes)
    return (
        not (chooses and refers)  # a choice within itself doubles the alternatives at each level
        and _alternatives(schema) <= _MOST_ALTERNATIVES
        and sum(map(_repetitions, nodes)) <= _MOST_REPETITIONS
    )


def _nodes(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
        for part in value.values():
            yield from _nodes(part)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for part in value:
            yield from _nodes(part)


def _repetitions(node: Mapping[str, Any]) -> int:
    counts: int = sum(node[key] for key in _COUNTS if isinstance(node.get(key), int))
    return counts + 10 * len(node["enum"] if isinstance(node.get("enum"), list) else ())


def _alternatives(value: Any) -> int:
    """Count the alternatives that can be open at once."""
    if isinstance(value, Mapping):
        parts = [_alternatives(part) for key, part in value.items() if key not in _CHOICES]
        choices = [
            sum(map(_alternatives, value[key])) for key in _CHOICES if isinstance(value.get(key), list)
        ]
        return max([1, len(value), *parts, *choices])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return max(map(_alternatives, value), default=1)
    return 1


def _depths(text: str) -> int:
    """Add up the deepest parentheses of all rules."""
    total = 0
    for rule in text.splitlines():
        depth = deepest = 0
        for character in rule:
            depth += (character == "(") - (character == ")")
            deepest = max(deepest, depth)
        total += deepest
    return total


class _Bytes:
    """A vocabulary of bytes. UTF-8 never has the byte 255, which stands for the end."""

    vocabulary_size = 256

    def piece(self, token: int) -> bytes:
        """Return a token's bytes."""
        return b"" if self.ends(token) else bytes([token])

    def ends(self, token: int) -> bool:
        """Return whether a token ends the answer."""
        return token == 255

    def tokenize_apart(self, text: str) -> list[int]:
        """Turn text into tokens."""
        return list(text.encode())
