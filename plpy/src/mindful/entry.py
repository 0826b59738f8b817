"""Entry points: the Python functions that bodies of SQL functions call."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from mindful.ports import Database

P = ParamSpec("P")
R = TypeVar("R")


def sql_function(function: Callable[Concatenate[Database, P], R]) -> Callable[P, R]:
    """Give a function the backend's database as its first argument, and its errors a SQLSTATE and a hint.

    The body of the SQL function imports the result by the SQL function's own name and passes its arguments on.
    A generator function becomes one whose iteration is guarded in the same way.
    """

    # Errors are turned here and not in a helper's frame: PL/Python shows users every frame below the body.
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        from mindful import backend  # imports plpy, which only a server has

        try:
            return function(backend.database(), *args, **kwargs)
        except backend.REPORTABLE as error:
            raise backend.reported(error) from None

    # PL/Python reports what an iterator raises as a detail of a message of its own. So the first item is made here,
    # where errors are those of the call; arguments, slots and prompts are then past.
    @functools.wraps(function)
    def iterate(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
        from mindful import backend

        try:
            items: Iterator[Any] = function(backend.database(), *args, **kwargs)  # type: ignore[assignment]
            first = list(itertools.islice(items, 1))
        except backend.REPORTABLE as error:
            raise backend.reported(error) from None
        return rest(first, items)

    def rest(first: list[Any], items: Iterator[Any]) -> Iterator[Any]:
        from mindful import backend

        try:
            yield from first
            yield from items
        except backend.REPORTABLE as error:
            raise backend.reported(error) from None

    return iterate if inspect.isgeneratorfunction(function) else call  # type: ignore[return-value]


def writing_function(function: Callable[Concatenate[Database, P], R]) -> Callable[P, R]:
    """Do as `sql_function` does, and refuse a read-only transaction or a standby before anything is computed."""
    guarded = sql_function(function)

    # Not within a generator, whose errors PL/Python gives a message of its own.
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        _require_writable()
        return guarded(*args, **kwargs)

    return call


@sql_function
def _require_writable(db: Database) -> None:
    db.rows("select mindful._writable()")
