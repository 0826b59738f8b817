"""A database for unit tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mindful.ports import Row

Answer = Sequence[Row] | Callable[..., Sequence[Row]]


class FakeDatabase:
    """Answers a statement with the rows of the first key that stands in it, and keeps what it was asked.

    A function in the place of rows is called with the statement's arguments.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers: dict[str, Answer] = dict(answers) | {"_tenant() as tenant": [{"tenant": "ana"}]}
        self.asked: list[tuple[str, Sequence[Any]]] = []
        self.checks = 0
        self.commits = 0

    def rows(self, sql: str, types: Sequence[str] = (), arguments: Sequence[Any] = ()) -> list[Row]:
        """Answer one statement."""
        assert len(types) == len(arguments), sql
        self.asked.append((sql, arguments))
        answer = next((answer for key, answer in self.answers.items() if key in sql), None)
        assert answer is not None, f"unexpected statement: {sql}"
        return list(answer(*arguments) if callable(answer) else answer)

    def one(self, sql: str, types: Sequence[str] = (), arguments: Sequence[Any] = ()) -> Row:
        """Answer with the first row."""
        return self.rows(sql, types, arguments)[0]

    def check(self) -> None:
        """Count the looks at pending cancels."""
        self.checks += 1

    def pending(self) -> bool:
        """Nobody cancels."""
        return False

    def warning(self, message: str, hint: str) -> None:
        """No warning is expected."""
        raise AssertionError(f"{message}: {hint}")

    def commit(self) -> None:
        """Count commits."""
        self.commits += 1

    def secret(self) -> bytes:
        """Any key will do."""
        return b"k" * 32

    def arguments_of(self, key: str) -> list[Sequence[Any]]:
        """What the statements that hold the key were given."""
        return [arguments for sql, arguments in self.asked if key in sql]
