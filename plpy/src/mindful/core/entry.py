"""Entry points: the Python functions that bodies of SQL functions call."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from mindful.core.ports import Database

P = ParamSpec("P")
R = TypeVar("R")

_GENERATOR = 0x20
"""inspect.CO_GENERATOR. A new connection does not wait for inspect."""


def sql_function(
    function: Callable[Concatenate[Database, P], R], *, is_checked: bool = False
) -> Callable[P, R]:
    """Pass the backend's database as first argument, and report errors with a SQLSTATE and a hint.

    The body of the SQL function imports the result by the SQL function's name and passes its arguments on.
    A generator function stays a generator function, and errors of its iteration are reported in the same way.
    """

    # No helper function converts the errors: PL/Python shows users every frame below the body.
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        from mindful.core import backend  # imports plpy, which only a server has

        try:
            return function(backend.database(is_checked), *args, **kwargs)
        except backend.REPORTABLE as error:
            raise backend.reported(error) from None

    # PL/Python reports an iterator's error as the detail of another message. Therefore the first item is computed here,
    # where an error keeps its message. Errors of arguments, slots and prompts come before the first item.
    @functools.wraps(function)
    def iterate(*args: P.args, **kwargs: P.kwargs) -> Iterator[Any]:
        from mindful.core import backend

        try:
            db = backend.database(is_checked)
            items = _checked(db, function(db, *args, **kwargs))  # type: ignore[arg-type]
            first = list(itertools.islice(items, 1))
        except backend.REPORTABLE as error:
            raise backend.reported(error) from None
        return rest(first, items)

    def rest(first: list[Any], items: Iterator[Any]) -> Iterator[Any]:
        from mindful.core import backend

        try:
            yield from first
            yield from items
        except backend.REPORTABLE as error:
            raise backend.reported(error) from None

    return iterate if function.__code__.co_flags & _GENERATOR else call  # type: ignore[return-value]


def _checked(db: Database, items: Iterator[Any]) -> Iterator[Any]:
    """Look for a cancel before each item: the server forgets one that came meanwhile when a cursor's FETCH returns."""
    for item in items:
        db.check()
        yield item


def writing_function(function: Callable[Concatenate[Database, P], R]) -> Callable[P, R]:
    """Wrap a function as `sql_function` does, and raise 25006 first in a read-only transaction or on a standby."""
    guarded = sql_function(function, is_checked=True)

    # Outside the generator, because PL/Python replaces the message of an iterator's error.
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        _require_writable()
        return guarded(*args, **kwargs)

    return call


@sql_function
def _require_writable(db: Database) -> None:
    db.rows("select _mindful.writable()")
