"""A database for unit tests."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mindful.ports import Row

_DIRECTORY = tempfile.TemporaryDirectory()
Answer = Sequence[Row] | Callable[..., Sequence[Row]]


class FakeDatabase:
    """Answers a statement with the rows of the first key that stands in it, and keeps what it was asked.

    A function in the place of rows is called with the statement's arguments.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers: dict[str, Answer] = dict(answers) | {
            "_tenant() as tenant": [{"tenant": "ana"}],
            "'model_keep'": [{"keep": True}],
            "mindful.setting_get($1)": lambda key: [{"value": {"model_slots": 2}.get(key, 1000)}],
        }
        self.asked: list[tuple[str, Sequence[Any]]] = []
        self.checks = 0
        self.commits = 0
        self.afterwards: list[Callable[[], object]] = []
        self.woken: list[int] = []

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

    def attempt(
        self, sql: str, types: Sequence[str], arguments: Sequence[Any], undo: bool, timeout_ms: int
    ) -> list[Row]:
        """Run it as any statement."""
        return self.rows(sql, types, arguments)

    def after_transaction(self, action: Callable[[], object]) -> None:
        """Keep what is to be done."""
        self.afterwards.append(action)

    def sleep(self, seconds: float) -> None:
        """Time passes as it does."""
        time.sleep(seconds)

    def wake(self, process: int) -> None:
        """Keep who was woken."""
        self.woken.append(process)

    def directory(self) -> str:
        """Return a folder for this process's tests."""
        return _DIRECTORY.name

    def secret(self) -> bytes:
        """Any key will do."""
        return b"k" * 32

    def arguments_of(self, key: str) -> list[Sequence[Any]]:
        """What the statements that hold the key were given."""
        return [arguments for sql, arguments in self.asked if key in sql]
