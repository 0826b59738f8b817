"""The client's methods are the SQL functions."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from mindful_client import AsyncClient, Client, calls
from mindful_client import types as row_types
from mindful_client.calls.statement import DEFAULT, Call, Stream

HELPERS = {"chat", "chat_stream"}
"""Methods that are two calls."""
OWN = {"cancel", "close"}
"""Methods that are no call."""
WITHIN = "tenant_set"
"""What every call of a client with a tenant begins with."""
DEPRECATED = ("llm_stream",)
BY_NAME = "on_error"
"""The argument that selects an overload. SQL asks for it by name."""
BY_POSITION = {("llm_classify", "labels"), ("llm_classify_many", "labels"), ("setting_reset", "key")}
"""Arguments with a default that are not keywords only. labels had none in 0.2.0."""

SIGNATURES = """
    select p.proname, p.proargnames[1:p.pronargs], p.proargtypes::regtype[]::text[], p.pronargdefaults,
        coalesce(
            nullif(p.proargnames[p.pronargs + 1:], '{}'),
            (select array_agg(a.attname order by a.attnum) from pg_attribute a
                where a.attrelid = t.typrelid and a.attnum > 0)
        )
    from pg_proc p join pg_type r on r.oid = p.prorettype
    join pg_type t on t.oid = coalesce(nullif(r.typelem, 0), r.oid)
    where p.pronamespace = 'mindful'::regnamespace
        and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
"""


@dataclasses.dataclass(frozen=True)
class Function:
    """What the server says of a function."""

    name: str
    arguments: dict[str, str]
    defaults: int
    columns: list[str] | None

    def call(self) -> Callable[..., Call[Any] | Stream[Any]]:
        """Return the client's call of this overload."""
        name = self.name.removesuffix("_many") + "_each" if BY_NAME in self.arguments else self.name
        build: Callable[..., Call[Any] | Stream[Any]] = getattr(calls, name)
        return build


@pytest.fixture
def functions(db: psycopg.Connection) -> list[Function]:
    """All functions; those of one name are its overloads."""
    rows = db.execute(SIGNATURES).fetchall()
    return [
        Function(name, dict(zip(names or [], types, strict=True)), defaults, columns)
        for name, names, types, defaults, columns in rows
        if name not in {WITHIN, *DEPRECATED}
    ]


def methods(client: type) -> dict[str, Any]:
    return {name: value for name, value in vars(client).items() if not name.startswith("_")}


def with_every_argument(build: Callable[..., Call[Any] | Stream[Any]]) -> Call[Any] | Stream[Any]:
    return build(**dict.fromkeys(inspect.signature(build).parameters))


def test_every_function_is_a_method(functions: list[Function]) -> None:
    assert set(methods(Client)) - HELPERS - OWN == {function.name for function in functions}


def test_arguments_are_the_functions_own(functions: list[Function]) -> None:
    for function in functions:
        parameters = inspect.signature(function.call()).parameters
        required = len(function.arguments) - function.defaults
        assert list(parameters) == list(function.arguments), function
        for position, parameter in enumerate(parameters.values()):
            given = position < required
            positional = given and parameter.name != BY_NAME
            positional |= (function.name, parameter.name) in BY_POSITION
            shown = f"{function.name}: {parameter}"
            assert (parameter.default is DEFAULT) != given, shown
            assert (parameter.kind is inspect.Parameter.KEYWORD_ONLY) != positional, shown


def test_arguments_are_cast_to_the_functions_types(functions: list[Function]) -> None:
    for function in functions:
        text = with_every_argument(function.call()).query.as_string()
        casts = dict(re.findall(r'"(\w+)" => %\(\w+\)s::(?:mindful\.)?([a-z_ ]+(?:\[\])?)', text))
        written = {
            argument: kind.replace("timestamp with time zone", "timestamptz").replace(
                "anycompatible", "jsonb"
            )
            for argument, kind in function.arguments.items()
        }
        assert casts == written, function


def test_rows_have_the_functions_columns(functions: list[Function]) -> None:
    shapes = {
        tuple(field.name for field in dataclasses.fields(value))
        for value in vars(row_types).values()
        if dataclasses.is_dataclass(value)
    }
    assert {tuple(function.columns) for function in functions if function.columns} == shapes


def test_a_method_has_the_arguments_of_all_overloads(functions: list[Function]) -> None:
    for name, method in methods(Client).items():
        offered = {key for function in functions if function.name == name for key in function.arguments}
        if name not in HELPERS | OWN:
            assert set(inspect.signature(method).parameters) == {"self", *offered}, name


def test_arguments_that_are_not_given_are_left_to_the_server() -> None:
    call = calls.memory_recall("a cat")
    assert "kinds" not in call.query.as_string()
    assert call.parameters == {"query": "a cat"}
    assert calls.memory_recall("a cat", kinds=None).parameters == {"query": "a cat", "kinds": None}


def test_both_clients_have_the_same_methods() -> None:
    assert list(methods(Client)) == list(methods(AsyncClient))
    for name, method in methods(Client).items():
        twin = getattr(AsyncClient, name)
        mine, other = inspect.signature(method), inspect.signature(twin)
        assert mine.parameters == other.parameters, name
        assert method.__doc__, name
        returned = re.sub(
            r"AsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]", str(other.return_annotation)
        )
        assert mine.return_annotation == returned, name
        assert inspect.iscoroutinefunction(twin) or name.endswith("stream"), name


def test_a_method_is_what_it_says_it_is() -> None:
    shown = str(inspect.signature(Client("").memory_recall))
    assert shown.startswith("(query: 'str', *, k: 'int' = DEFAULT")
    assert shown.endswith("-> 'list[RecalledMemory]'")
    assert inspect.iscoroutinefunction(AsyncClient.llm_chat)
