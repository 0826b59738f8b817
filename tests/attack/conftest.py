"""Records what an attacker's statements came to, for the table that `make attack` prints."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.attempt import CANCELED, GROUPS, Attempt
from support.clock import Clock
from support.cluster import Connect
from support.markers import put

ATTEMPTS: dict[str, Attempt] = {}
"""By test function: parameters of one are one attack."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of `make attack`."""
    group = parser.getgroup("attack")
    group.addoption("--table", action="store_true", help="print the attacks and what came of them")
    group.addoption("--write", type=Path, help="put the table into this file, between its markers")


@pytest.fixture(autouse=True)
def attempt(request: pytest.FixtureRequest) -> Attempt:
    """The record of this test."""
    function = request.function
    return ATTEMPTS.setdefault(_key(function), Attempt(_line(function)))


def _key(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__name__}"


def _line(function: Callable[..., object]) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]


@pytest.fixture
def watch(attempt: Attempt) -> Callable[[psycopg.Connection, str], psycopg.Connection]:
    """Records the errors of a connection: watch(connection, "bob")."""

    def watched(connection: psycopg.Connection, role: str) -> psycopg.Connection:
        attempt.roles.add(role)
        connection.cursor_factory = _watched(attempt, role)
        return connection

    return watched


@pytest.fixture
def connect(connect: Connect, watch: Callable[[psycopg.Connection, str], psycopg.Connection]) -> Connect:
    """Opens connections whose errors are recorded."""

    def open_connection(role: str | None = None) -> psycopg.Connection:
        connection = connect(role)
        return connection if role is None else watch(connection, role)

    return open_connection


def _watched(attempt: Attempt, role: str) -> type[psycopg.Cursor]:
    class Watched(psycopg.Cursor):
        def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
            clock = Clock()
            try:
                return super().execute(query, params, **options)
            except psycopg.Error as error:
                attempt.answered(role, error.sqlstate or "connection ended")
                if error.sqlstate == CANCELED:
                    attempt.canceled_ms.append(clock.taken_s * 1000)
                raise

    return Watched


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a test that failed, in its body or before it."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        function = item.function
        found = ATTEMPTS.setdefault(_key(function), Attempt(_line(function)))
        found.failed = "succeeded" if report.when == "call" else "not tried"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table, or write it."""
    table = _table()
    if config.getoption("--table"):
        terminalreporter.write_line("")
        terminalreporter.write(table)
    if file := config.getoption("--write"):
        put(file, "attack", table)


def _table() -> str:
    tried = [attempt for attempt in ATTEMPTS.values() if attempt.attack]
    held = sum(not attempt.failed for attempt in tried)
    lines = [f"{len(tried)} attacks tried, {held} held.", "", "| attack | role | outcome |", "|---|---|---|"]
    for attempt in tried:
        lines.append(f"| {attempt.attack.rstrip('.')} | {_role(attempt)} | {attempt.outcome()} |")
    return "\n".join(lines) + "\n"


def _role(attempt: Attempt) -> str:
    return GROUPS.get(attempt.attacker(), attempt.attacker())
