"""A database for unit tests."""

from __future__ import annotations

import inspect
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mindful.core.ports import Row

_DIRECTORY = tempfile.TemporaryDirectory()
Answer = Sequence[Row] | Callable[..., Sequence[Row]]


_SERVED = {"tenant": "ana", "keep": True, "relation": "memory_embedding_e"}
"""What a found model's row says beside the model."""


class FakeDatabase:
    """Answers a statement with the rows of the first key that stands in it, and keeps what it was asked.

    A function in the place of rows is called with the statement's arguments.
    """

    def __init__(self, *answers: Mapping[str, Answer]) -> None:
        known = {key: answer for given in answers for key, answer in given.items()}
        self.answers: dict[str, Answer] = known | {
            "mindful.setting_get('result_cache')": [{"wanted": False}],
            "select _mindful.tenant() as tenant": [{"tenant": "ana"}],
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
        rows = list(answer(*arguments) if callable(answer) else answer)
        return [_SERVED | row for row in map(dict, rows)] if "_mindful.model_find" in sql else rows

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


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function beneath sql_function or writing_function, which takes the database."""
    beneath: Callable[..., Any] = inspect.unwrap(function)
    return beneath


def scripted(embedder: Row | None = None, **generators: Row) -> dict[str, Answer]:
    """Answer as the registry of an embedder and of generators does, whose options these are; the first is default."""
    known: list[dict[str, Any]] = [
        {"kind": "generator", "name": name, "options": json.dumps(dict(options))}
        for name, options in generators.items()
    ]
    if embedder is not None:
        known.append({"kind": "embedder", "name": "embedder", "options": json.dumps(dict(embedder))})

    def found(kind: str = "embedder", name: str | None = None, *_: object) -> Sequence[Row]:
        rows = [row for row in known if row["kind"] == kind and name in (None, row["name"])]
        files = {"provider": "scripted", "source": "", "sha256": "cafe", "adapter": None}
        return [row | files for row in rows[:1]]

    return {
        "_mindful.model_find": found,
        "populate_recordset(null::mindful.generation": lambda rows: [
            {"id": at} for at, _ in enumerate(json.loads(rows), 1)
        ],
        "insert into mindful.generation": [{"id": 1}],
        "transaction_read_only": [{"log": True}],
    }
