"""Slots for running a model, taken and watched by tests."""

from __future__ import annotations

import time

import psycopg

from support.clock import Deadline
from support.query import one

_LOCKS = "from mindful.core import backend, slot; slot._locks(backend.database().directory())"


def hold(connection: psycopg.Connection, slot: int = 1) -> None:
    """Take a slot until it is freed or the connection ends."""
    connection.execute(f"do language plpython3u $$ {_LOCKS}.take({slot}) $$".encode())


def free(connection: psycopg.Connection, slot: int = 1) -> None:
    """Give a slot back."""
    connection.execute(f"do language plpython3u $$ {_LOCKS}.free({slot}) $$".encode())


def taken(connection: psycopg.Connection) -> int:
    """Count the slots that connections other than this one hold."""
    found: int = one(connection, "select count(slot) from slot_status()")
    return found


def waiting(connection: psycopg.Connection) -> int:
    """Count the connections other than this one that wait for a slot."""
    found: int = one(connection, "select count(*) from slot_status() where slot is null")
    return found


def wait_until_taken(connection: psycopg.Connection, count: int = 1) -> None:
    """Return once so many slots are taken at once."""
    deadline = Deadline()
    while taken(connection) < count:
        assert not deadline.passed()
        time.sleep(0.01)
