"""Functions that a client offers to the model, and the calls that the model answers with.

The client runs them; tools that the server itself runs are those of `tool`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mindful.conversation.messages import CLOSING, OPENING, Conversation
from mindful.core.errors import InvalidParameterError
from mindful.core.pattern import DOTALL, linear
from mindful.core.ports import Message
from mindful.generate.sampling import parsed
from mindful.generate.schema import Schema

CHOICES = ("none", "auto", "required")
_NAME = linear(r"[a-zA-Z0-9_-]{1,64}")
_HEAD = linear(r'\{"name": ?"([a-zA-Z0-9_-]{1,64})", ?"arguments": ?(?! )(?=.)', DOTALL)
_LONGEST_HEAD = 100
_MOST = 128
_PRESENTED = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
"""The words of Qwen 2.5's template, whose form of calls (NousResearch/Hermes-Function-Calling) others took over."""


class Offer(NamedTuple):
    """Functions that the model may call, or must."""

    functions: tuple[Mapping[str, Any], ...] = ()
    is_forced: bool = False
    grammar: str | None = None

    def presented(self, talk: Conversation) -> Conversation:
        """Put the functions into the system's message; where a call is forced, begin it."""
        if not self.functions:
            return talk
        if talk.is_plain:
            raise InvalidParameterError("tools are given with a plain text", "Give an array of messages.")
        listed = "\n".join(
            json.dumps({"type": "function", "function": one}, ensure_ascii=False) for one in self.functions
        )
        message = Message("system", _PRESENTED.format(tools=listed))
        first = talk.messages[:1]
        at = 1 if first and first[0].role == "system" else 0
        messages = (*talk.messages[:at], message, *talk.messages[at:])
        return talk._replace(messages=messages, opening=talk.opening + OPENING * self.is_forced)

    def reader(self) -> Reader:
        """Return what tells an answer's text from its calls."""
        if not self.functions:
            return Reader()
        return CallReader(self.is_forced)


class Reader:
    """Passes an answer's text on."""

    def read(self, text: str) -> tuple[str, dict[str, Any] | None]:
        """Return what of a new piece is text, and what belongs to a call."""
        return text, None

    def rest(self, is_complete: bool) -> tuple[str, dict[str, Any] | None]:
        """Return what was held back, at the end of an answer."""
        return "", None


class CallReader(Reader):
    """Reads a call where the answer begins with one: its name first, then its arguments as they are made."""

    def __init__(self, is_forced: bool) -> None:
        self._end = "}" if is_forced else "}" + CLOSING
        self._opening = "" if is_forced else OPENING
        self._held = ""
        self._is_text = self._is_call = False

    def read(self, text: str) -> tuple[str, dict[str, Any] | None]:
        """Return what of a new piece is text, and what belongs to a call."""
        if self._is_text:
            return text, None
        self._held += text
        if self._is_call:
            return "", self._arguments()
        if (head := self._head()) is not None:
            return "", head
        return ("", None) if self._begins() else self._as_text()

    def rest(self, is_complete: bool) -> tuple[str, dict[str, Any] | None]:
        """Return what was held back, at the end of an answer."""
        if not self._is_call:
            return self._as_text()
        held = self._held.removesuffix(self._end) if is_complete else self._held
        return "", {"arguments": held} if held else None

    def _begins(self) -> bool:
        """Tell whether what is held may be the beginning of a call."""
        length = min(len(self._held), len(self._opening))
        return self._held[:length] == self._opening[:length] and len(self._held) <= _LONGEST_HEAD + length

    def _as_text(self) -> tuple[str, None]:
        self._is_text, shown, self._held = True, self._held, ""
        return shown, None

    def _head(self) -> dict[str, Any] | None:
        found = _HEAD.match(self._held, len(self._opening)) if self._held.startswith(self._opening) else None
        if found is None:
            return None
        self._is_call, self._held = True, self._held[found.end() :]
        call = {"id": f"call_{uuid.uuid4().hex}", "name": found[1], "arguments": ""}
        return call | (self._arguments() or {})

    def _arguments(self) -> dict[str, Any] | None:
        """Return what is certainly part of the arguments: the call's own end is held back."""
        keep = len(self._end)
        shown, self._held = self._held[:-keep], self._held[-keep:]
        return {"arguments": shown} if shown else None


def offer_of(tools: str | None, choice: str | None, check: Callable[[], None]) -> Offer:
    """Check the functions and the choice among them: none, auto, required, or a function's name."""
    functions = list(_functions(parsed("tools", tools))) if tools is not None else []
    if len(functions) > _MOST:
        raise InvalidParameterError(
            f"tools has {len(functions)} functions, more than {_MOST}", "Offer fewer."
        )
    names = [one["name"] for one in functions]
    wanted = choice or "auto"
    if wanted not in CHOICES and wanted not in names:
        raise InvalidParameterError(
            f'tool_choice is "{wanted}"',
            "It must be none, auto, required or the name of a function in tools.",
        )
    if wanted == "required" and not functions:
        raise InvalidParameterError("tool_choice is required and tools has no function", "Give tools.")
    if not functions or wanted == "none":
        return Offer()
    callable_ = [one for one in functions if wanted in ("auto", "required", one["name"])]
    try:
        text = json.dumps(_schema(callable_))
    except RecursionError:
        raise InvalidParameterError("tools is nested too deeply", "Flatten it.") from None
    schema = Schema(text, check)
    call = schema.grammar.replace("root ::=", "call ::=", 1)
    root = "root ::= call\n" if wanted != "auto" else _free()
    return Offer(tuple(functions), wanted != "auto", root + call)


def _functions(given: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(given, list):
        raise InvalidParameterError("tools is not an array", "Give an array of functions.")
    for at, tool in enumerate(given):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            raise InvalidParameterError(
                f"tools[{at}] is not a function", 'Give {"type": "function", "function": {}}.'
            )
        if not isinstance(function.get("name"), str) or not _NAME.fullmatch(function["name"]):
            raise InvalidParameterError(
                f"tools[{at}].function.name is not a name",
                "Use up to 64 letters, digits, hyphens and underscores.",
            )
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        if not isinstance(parameters, dict):
            raise InvalidParameterError(
                f"tools[{at}].function.parameters is not an object", "Give a JSON schema."
            )
        yield {
            "name": function["name"],
            "description": str(function.get("description") or ""),
            "parameters": parameters,
        }


def _schema(functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Write the schema of a call; each function's own references lead to where its parameters are."""
    places = {f"f{at}": one for at, one in enumerate(functions)}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": one["name"]}, "arguments": {"$ref": f"#/$defs/{place}"}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for place, one in places.items()
    ]
    definitions = {
        place: _moved(_object(one["parameters"]), f"#/$defs/{place}") for place, one in places.items()
    }
    return {"anyOf": calls, "$defs": definitions}


def _object(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object"} | {key: value for key, value in parameters.items() if key != "$schema"}


def _moved(part: Any, place: str) -> Any:
    """Let the references of a schema lead to its new place."""
    if isinstance(part, list):
        return [_moved(one, place) for one in part]
    if not isinstance(part, dict):
        return part
    return {
        key: place + value.removeprefix("#")
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else _moved(value, place)
        for key, value in part.items()
    }


def _free() -> str:
    """Write the root of a grammar for a call, or for any text that does not begin as one."""
    opening = OPENING.strip()
    others = " | ".join(
        f'"{opening[:at]}" ([^{letter}\\x00] [^\\x00]*)?' if at else f"[^{letter}\\x00] [^\\x00]*"
        for at, letter in enumerate(opening)
    )
    return f'root ::= "{opening}\\n" call "\\n</tool_call>" | "" | {others}\n'
