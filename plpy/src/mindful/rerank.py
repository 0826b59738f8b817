"""Reranking: how well texts answer a query, by a model that reads both together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from mindful import runtime
from mindful.call import BLANK, check_length
from mindful.entry import sql_function
from mindful.errors import InvalidParameterError
from mindful.ports import Database
from mindful.slot import Turn


class _TimeIsUpError(Exception):
    """Raised within a model to end its work."""


class _LimitedTurn(Turn):
    """A turn that ends at a time."""

    def __init__(self, db: Database, deadline: float) -> None:
        super().__init__(db)
        self._deadline = deadline

    def check(self) -> None:
        """Raise if a cancel is pending or the time is up."""
        super().check()
        if time.monotonic() > self._deadline:
            raise _TimeIsUpError


@sql_function
def llm_rerank(
    db: Database,
    query: str | None,
    contents: Sequence[str | None] | None,
    model: str | None,
    limit_ms: int | None,
) -> list[float | None] | None:
    """Score texts, as many as the time allows."""
    if query is None or contents is None:
        return None
    if limit_ms is not None and limit_ms < 1:
        raise InvalidParameterError(f"limit_ms is {limit_ms}", "Give at least 1, or NULL for no limit.")
    _check("query", query)
    for text in contents:
        if text is not None:
            _check("content", text)
    scores: list[float | None] = [None] * len(contents)
    deadline = time.monotonic() + (limit_ms / 1000 if limit_ms else float("inf"))
    _, reranker = runtime.reranker(db, model)
    given = [at for at, text in enumerate(contents) if text is not None]
    with contextlib.suppress(_TimeIsUpError), _LimitedTurn(db, deadline) as turn:
        found = reranker.score(query, [text for text in contents if text is not None], turn)
        for at, score in zip(given, found, strict=True):
            scores[at] = score
    return scores


def _check(name: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidParameterError("contents has more than one dimension", "Give a one-dimensional array.")
    if not text.strip(BLANK):
        raise InvalidParameterError(f"{name} is empty", "Give a text with at least one visible character.")
    check_length(name, text)
