"""Reranking: scores of how well texts answer a query."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from mindful.core.entry import sql_function
from mindful.core.errors import InvalidParameterError
from mindful.core.ports import Database
from mindful.core.slot import Turn
from mindful.generate.call import BLANK, check_length
from mindful.models import runtime


class _TimeIsUpError(Exception):
    """Raised inside a model when limit_ms is over."""


class _LimitedTurn(Turn):
    """A turn with a deadline."""

    def __init__(self, db: Database, deadline: float, served: bool) -> None:
        super().__init__(db, served=served)
        self._deadline = deadline

    def check(self) -> None:
        """Raise if an interrupt is pending or the deadline is over."""
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
    """Score texts until the time limit. Texts without a score give NULL."""
    if query is None or contents is None:
        return None
    if limit_ms is not None and limit_ms < 1:
        raise InvalidParameterError(f"limit_ms is {limit_ms}", "Pass at least 1, or NULL for no limit.")
    _check("query", query)
    for text in contents:
        if text is not None:
            _check("content", text)
    scores: list[float | None] = [None] * len(contents)
    deadline = time.monotonic() + (limit_ms / 1000 if limit_ms else float("inf"))
    _, reranker = runtime.reranker(db, model)
    given = [at for at, text in enumerate(contents) if text is not None]
    with contextlib.suppress(_TimeIsUpError), _LimitedTurn(db, deadline, reranker.served) as turn:
        found = reranker.score(query, [text for text in contents if text is not None], turn)
        for at, score in zip(given, found, strict=True):
            scores[at] = score
    return scores


@sql_function
def llm_rank(
    db: Database, query: str | None, contents: Sequence[str | None] | None, model: str | None
) -> list[dict[str, Any]]:
    """Order texts by how well they answer a query."""
    if query is None or contents is None:
        return []
    _check("query", query)
    given = [(at, text) for at, text in enumerate(contents) if text is not None]
    for _, text in given:
        _check("content", text)
    scores = _scores(db, query, [text for _, text in given], model) if given else []
    rows = [
        {"number": at + 1, "content": text, "score": score}
        for (at, text), score in zip(given, scores, strict=True)
    ]
    return sorted(rows, key=lambda row: -row["score"])


def _scores(db: Database, query: str, texts: Sequence[str], model: str | None) -> list[float]:
    """Score texts with a reranker, or by the log-probability that a generator gives the query after each text.

    The likelihood of the query is a score of relevance (Sachan et al. 2022, arXiv 2204.07496).
    """
    is_reranker = db.rows("select from _mindful.model_find('reranker', $1)", ("text",), (model,))
    if is_reranker:
        _, reranker = runtime.reranker(db, model)
        with Turn(db, served=reranker.served) as turn:
            return list(reranker.score(query, texts, turn))
    generator = runtime.generator(db, model)[1]
    with Turn(db, wide=len(texts) > 1, served=generator.served) as turn:
        rows = generator.score([_form(text) for text in texts], [f" {_line(query)}"], "\n", turn)
    return [score for (score,) in rows]


def _form(text: str) -> str:
    return f"Text: {_line(text)}\nA question that the text answers:"


def _line(text: str) -> str:
    return " ".join(text.split())


def _check(name: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidParameterError("contents has more than one dimension", "Pass a one-dimensional array.")
    if not text.strip(BLANK):
        raise InvalidParameterError(f"{name} is empty", "Pass a text with at least one visible character.")
    check_length(name, text)
