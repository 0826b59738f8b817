"""Tools: which functions are accepted, which are chosen, and how they are called."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from mindful.conversation import tool
from mindful.conversation.tool import Toolbox, ToolCall, tool_register
from mindful.core.errors import (
    AttemptError,
    InvalidParameterError,
    MindfulError,
    NullValueError,
    WrongObjectError,
)
from mindful.core.ports import Database, Row
from mindful.models import runtime
from mindful.models.runtime import FoundEmbedder
from unit.fakes import FakeDatabase, scripted, wrapped

CITY = {"name": "city", "type": "text", "required": True, "pseudo": False}
DAYS = {"name": "days", "type": "integer[]", "required": False, "pseudo": False}


def schema_of(*arguments: Row) -> dict[str, Any]:
    found: dict[str, Any] = tool._schema_of(arguments)
    return found


class Registry(FakeDatabase):
    """A function, and what is entered of it."""

    def __init__(self, *arguments: Row, kind: str | None = None) -> None:
        self.entered: list[Any] = []
        super().__init__(
            {
                "_mindful.tool_function": [{"kind": kind, "arguments": json.dumps(arguments)}],
                "_mindful.tool_insert": self.insert,
            }
        )

    def insert(self, *arguments: Any) -> Sequence[Row]:
        """Be late once: another transaction has just entered it."""
        self.entered.append(arguments)
        return [{"name": arguments[0] if len(self.entered) > 1 else None}]

    def register(self, **changed: Any) -> str:
        """Register it."""
        arguments = {
            "name": "weather",
            "function": "weather(text)",
            "description": "Tells the weather.",
            "json_schema": None,
            "read_only": True,
            "scope": "user",
        }
        entered: str = wrapped(tool_register)(self, *(arguments | changed).values())
        return entered


def test_a_function_is_entered_with_the_schema_of_its_arguments() -> None:
    db = Registry(CITY, DAYS)
    assert db.register() == "weather"
    name, function, description, schema, read_only, scope = db.entered[-1]
    assert (name, function, read_only, scope) == ("weather", "weather(text)", True, "user")
    assert description == "Tells the weather."
    assert json.loads(schema) == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert len(db.entered) == 2


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"name": None}, NullValueError),
        ({"function": None}, NullValueError),
        ({"description": None}, NullValueError),
        ({"read_only": None}, NullValueError),
        ({"name": "Weather"}, InvalidParameterError),
        ({"name": "1a"}, InvalidParameterError),
        ({"name": "w" * 64}, InvalidParameterError),
        ({"description": " "}, InvalidParameterError),
        ({"description": "x" * 1001}, InvalidParameterError),
        ({"scope": "galaxy"}, InvalidParameterError),
        ({"scope": None}, InvalidParameterError),
        ({"json_schema": json.dumps({"type": "array"})}, InvalidParameterError),
        (
            {"json_schema": json.dumps(schema_of(CITY) | {"additionalProperties": True})},
            InvalidParameterError,
        ),
        ({"json_schema": json.dumps(schema_of(CITY) | {"required": []})}, InvalidParameterError),
        (
            {"json_schema": json.dumps(schema_of(CITY, DAYS | {"name": "other"}))},
            InvalidParameterError,
        ),
    ],
)
def test_bad_tools_are_not_entered(changed: dict[str, Any], error: type[MindfulError]) -> None:
    db = Registry(CITY, DAYS)
    with pytest.raises(error):
        db.register(**changed)
    assert db.entered == []


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "w" * 63},
        {"description": "x" * 1000},
        {"scope": "global"},
        {"json_schema": json.dumps(schema_of(CITY) | {"required": ["city"]})},
    ],
)
def test_bounds_are_allowed(changed: dict[str, Any]) -> None:
    assert Registry(CITY, DAYS).register(**changed)


@pytest.mark.parametrize("argument", [CITY | {"name": ""}, CITY | {"pseudo": True}])
def test_a_function_with_arguments_that_cannot_be_passed_is_refused(argument: Row) -> None:
    with pytest.raises(WrongObjectError):
        Registry(CITY, argument).register()
    with pytest.raises(WrongObjectError):
        Registry(CITY, kind="is an aggregate").register()


def of(name: str, description: str, *arguments: Row, **changed: Any) -> Row:
    found = {
        "name": name,
        "description": description,
        "relation": f"public.{name}",
        "arguments": json.dumps(arguments),
        "json_schema": json.dumps(schema_of(*arguments)),
        "read_only": True,
        "returns_set": False,
    }
    return found | changed


WEATHER = of("weather", "rain and sun in a city", CITY)
CLOCK = of("clock", "time of day now")


class Chat(FakeDatabase):
    """A message whose tools are called."""

    def __init__(
        self,
        *tools: Row,
        error: MindfulError | None = None,
        embedder: bool = True,
        result: str = '"dry"',
        **settings: Any,
    ) -> None:
        tool._vectors.clear()
        self.ran: list[tuple[Any, ...]] = []
        self.error, self.result = error, result
        usual = {
            "chat_tools": "read",
            "tool_calls": 2,
            "tool_timeout_ms": 70,
            "tool_result_tokens": 50,
            "tool_threshold": 0.3,
        }
        self.settings = usual | settings
        replies = [["Oslo", '{"city": "Oslo"}']]
        super().__init__(
            {"_mindful.tool_available": self.available},
            scripted({"dims": 512} if embedder else None, generator={"replies": replies, "default": "{}"}),
        )
        self.tools = tools

    def available(self, writing: bool) -> Sequence[Row]:
        """List what may be called."""
        return [one for one in self.tools if writing or one["read_only"]]

    def attempt(
        self, sql: str, types: Sequence[str], arguments: Sequence[Any], undo: bool, timeout_ms: int
    ) -> list[Row]:
        """Run a tool."""
        self.ran.append((*arguments, undo, timeout_ms))
        if self.error is not None:
            raise self.error
        return [{"result": self.result}]

    def use(self, message: str, room: int = 1000) -> list[ToolCall]:
        """Use tools."""
        spec, generator = runtime.generator(self, None)
        return Toolbox(self, spec, generator, self.settings).use(message, room)


def test_the_tool_that_is_like_the_message_is_called_with_arguments_from_it() -> None:
    db = Chat(WEATHER, CLOCK)
    (call,) = db.use("rain or sun in a city Oslo")
    assert (call.name, call.arguments, call.result, call.outcome, call.sqlstate) == (
        "weather",
        '{"city": "Oslo"}',
        '"dry"',
        "ok",
        None,
    )
    ((statement, arguments, read_only, undo, timeout),) = db.ran
    assert (json.loads(arguments), read_only, undo, timeout) == ({"city": "Oslo"}, True, True, 70)
    assert 'public.weather("city" => given."city")' in statement
    assert '("city" text)' in statement
    assert statement.endswith("limit 20")


def test_a_call_tells_how_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter((10.0, 10.25))
    monkeypatch.setattr(tool, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    (call,) = Chat(WEATHER, CLOCK).use("what time of day now")
    assert call.ms == 250


def test_a_tool_without_arguments_is_called_without_the_model() -> None:
    db = Chat(WEATHER, CLOCK)
    (call,) = db.use("what time of day now")
    assert (call.name, call.arguments) == ("clock", "{}")
    assert "public.clock()" in db.ran[0][0]
    assert not db.arguments_of("insert into mindful.generation")


def test_rows_of_a_set_are_one_array() -> None:
    given = tool._statement(of("many", "x", CITY, returns_set=True), {"city": "a"})
    assert given.startswith("select coalesce(pg_catalog.jsonb_agg(")
    assert tool._identifier('a"b') == '"a""b"'


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"tool_calls": 1}, ["clock"]),
        ({"tool_calls": 2}, ["clock", "weather"]),
        ({"tool_threshold": 0.99}, []),
        ({"chat_tools": "off"}, []),
        ({"embedder": False}, []),
    ],
)
def test_so_many_as_allowed_are_called_the_likest_first(changed: dict[str, Any], names: list[str]) -> None:
    db = Chat(WEATHER, CLOCK, **changed)
    assert [call.name for call in db.use("time of day now, rain and sun")] == names


def test_what_writes_is_called_where_that_is_allowed() -> None:
    order = of("order_pizza", "order pizza", read_only=False)
    assert Chat(order).use("order pizza") == []
    db = Chat(order, chat_tools="write")
    assert [call.name for call in db.use("order pizza")] == ["order_pizza"]
    assert db.ran[0][3] is False


@pytest.mark.parametrize(("sqlstate", "outcome"), [("57014", "timeout"), ("22012", "failed")])
def test_an_error_is_the_result(sqlstate: str, outcome: str) -> None:
    db = Chat(CLOCK, error=AttemptError("it broke", sqlstate))
    (call,) = db.use("time of day now")
    assert (call.outcome, call.sqlstate, call.result) == (outcome, sqlstate, "it broke")
    assert "failed: it broke" in call.content


@pytest.mark.parametrize(("room", "length"), [(1000, 50), (60, 30), (10, 5), (0, 0)])
def test_results_share_the_room(room: int, length: int) -> None:
    db = Chat(WEATHER, CLOCK, result="word " * 100)
    calls = db.use("time of day now, rain and sun in Oslo", room)
    assert [len(call.result.split()) for call in calls] == [length, length]


def test_descriptions_are_embedded_once() -> None:
    db = Chat(WEATHER, CLOCK)
    db.use("time of day now")
    assert len(tool._vectors) == 2
    held = dict(tool._vectors)
    db.use("rain and sun")
    assert all(tool._vectors[key] is vector for key, vector in held.items())


def test_another_embedder_of_the_same_name_embeds_them_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    db = Chat(WEATHER, CLOCK)
    db.use("time of day now")
    found = runtime.default_embedder

    def changed(db: Database) -> FoundEmbedder | None:
        embedder = found(db)
        assert embedder
        embedder.sha256 = "another"
        return embedder

    monkeypatch.setattr(runtime, "default_embedder", changed)
    db.use("time of day now")
    assert len(tool._vectors) == 4


def test_a_full_cache_loses_no_tool_of_the_call() -> None:
    db = Chat(CLOCK, WEATHER)
    db.use("time of day now")
    tool._vectors.update({("bob", "embedder", "", str(at)): [] for at in range(254)})
    db.tools = (CLOCK, WEATHER, of("other", "something else"))
    assert [call.name for call in db.use("time of day now")] == ["clock"]
    assert len(tool._vectors) == 3


def test_a_call_is_a_message() -> None:
    turn = ToolCall("clock", None, "noon", "ok", None, 1.23456).turn()
    assert (turn["role"], turn["content"]) == ("tool", "clock() gave noon")
    assert turn["metadata"] == {
        "tool": "clock",
        "arguments": None,
        "result": "noon",
        "outcome": "ok",
        "sqlstate": None,
        "ms": 1.235,
    }
