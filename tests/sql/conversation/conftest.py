"""A tenant for each test, where loading the models again would take most of its time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import psycopg
import pytest
from support import Connect

_NUMBERS = itertools.count(1)


@pytest.fixture
def tenant(connect: Connect, sharing: object) -> Callable[[str], psycopg.Connection]:
    """Gives a user of that name, on the connection that tests share; without one it is ana's own."""

    def of(name: str) -> psycopg.Connection:
        if sharing is None:
            return connect("ana")
        application = connect("application")
        application.execute("select set_config('mindful.tenant', %s, false)", (name,))
        return application

    return of


@pytest.fixture
def customer(tenant: Callable[[str], psycopg.Connection]) -> psycopg.Connection:
    """A user whom no other test knows."""
    return tenant(f"customer-{next(_NUMBERS)}")
