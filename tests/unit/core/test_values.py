"""Values are named tuples, and named tuples they stay."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import mindful
import pytest

OWN = {
    "__len__",
    "__iter__",
    "__getitem__",
    "__contains__",
    "__bool__",
    "__eq__",
    "__hash__",
    "count",
    "index",
}
"""What a named tuple has as a tuple, and makes its copies by."""


def named_tuples() -> Iterator[type]:
    for found in pkgutil.walk_packages(mindful.__path__, "mindful."):
        try:
            module = importlib.import_module(found.name)
        except ImportError:  # plpy, and extras that are not installed
            continue
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == found.name and hasattr(value, "_fields"):
                yield value


@pytest.mark.parametrize("value", list(named_tuples()), ids=lambda value: value.__qualname__)
def test_a_named_tuple_is_a_tuple_of_its_fields(value: type) -> None:
    assert not OWN & vars(value).keys()
