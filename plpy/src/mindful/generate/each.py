"""Many texts of which some fail: each result with its error."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from mindful.core.entry import sql_function
from mindful.core.errors import (
    ContextLengthError,
    DataError,
    EngineAnswerError,
    InvalidParameterError,
    MindfulError,
    NullValueError,
)
from mindful.core.ports import Database
from mindful.core.text import seldom
from mindful.generate.batch import call_of_prompt
from mindful.generate.cache import answers
from mindful.generate.call import Arguments, Call
from mindful.generate.label import classified, question_truths
from mindful.generate.llm import embedded
from mindful.generate.structure import call_of_content

_OF_A_TEXT = (InvalidParameterError, NullValueError, ContextLengthError, DataError, EngineAnswerError)
"""Errors that concern one text. All others, such as a server that is down, end the call."""

Row = dict[str, Any]
Run = Callable[[Sequence[str]], Sequence[Any]]


@sql_function
def llm_generate_each(
    db: Database, prompts: Sequence[str | None] | None, on_error: str | None, *arguments: Any
) -> list[Row]:
    """Answer many prompts, each with its error."""
    return _answered(db, prompts, on_error, call_of_prompt(db, Arguments(*arguments)))


@sql_function
def llm_extract_each(
    db: Database,
    contents: Sequence[str | None] | None,
    json_schema: str | None,
    on_error: str | None,
    instruction: str | None,
    model: str | None,
    max_tokens: int | None,
) -> list[Row]:
    """Extract JSON from many texts, each with its error."""
    call = call_of_content(db, json_schema, instruction, model, max_tokens)
    return _answered(db, contents, on_error, call)


@sql_function
def llm_classify_each(
    db: Database,
    contents: Sequence[str | None] | None,
    labels: Sequence[str | None] | None,
    on_error: str | None,
    instruction: str | None,
    model: str | None,
    subtract_prior: bool | None,
    descriptions: str | None,
    examples: str | None,
    classifier: str | None,
) -> list[Row]:
    """Classify many texts, each with its error."""
    classify = classified(db, labels, instruction, model, subtract_prior, descriptions, examples, classifier)
    return _rows(db, contents, on_error, classify)


@sql_function
def llm_if_each(
    db: Database,
    contents: Sequence[str | None] | None,
    condition: str | None,
    on_error: str | None,
    model: str | None,
) -> list[Row]:
    """Return for each text whether a statement is true of it, with its error."""
    if condition is None:
        return _empty(contents)
    return _rows(db, contents, on_error, question_truths(db, condition, model))


@sql_function
def llm_embed_each(
    db: Database, contents: Sequence[str | None] | None, on_error: str | None, model: str | None
) -> list[Row]:
    """Embed many texts, each with its error."""
    return _rows(db, contents, on_error, lambda texts: embedded(db, texts, model))


def _answered(
    db: Database,
    texts: Sequence[str | None] | None,
    on_error: str | None,
    call_of_text: Callable[[int, str], Call],
) -> list[Row]:
    """Answer the calls made of texts in shared batches.

    An answer that does not fit its schema, or a prompt that does not fit the context, costs its own row only.
    """
    call_of_text(0, "a")  # a wrong argument concerns all texts, so it is an error of the call
    rows = _empty(texts)
    calls: dict[int, Call] = {}

    def make(at: int, text: str) -> None:
        calls[at] = call_of_text(at, text)

    def finish(at: int, text: str) -> None:
        rows[at]["result"] = calls[at].checked(text)

    look = seldom(db.check)
    for at, text in enumerate(texts or ()):
        look()  # a text that is refused reaches no query, which would check
        if text is not None:
            _try(rows[at], on_error, make, at, text)
    made = _halved(db, [(at, calls[at]) for at in calls], lambda some: answers(db, some), rows, on_error)
    for at, text in made.items():
        look()
        _try(rows[at], on_error, finish, at, text)
    return rows


def _rows(db: Database, texts: Sequence[str | None] | None, on_error: str | None, run: Run) -> list[Row]:
    rows = _empty(texts)
    given = [(at, text) for at, text in enumerate(texts or ()) if text is not None]
    for at, result in _halved(db, given, run, rows, on_error).items():
        rows[at]["result"] = result
    return rows


def _empty(texts: Sequence[str | None] | None) -> list[Row]:
    if any(isinstance(text, list) for text in texts or ()):
        raise InvalidParameterError(
            "the array of texts has more than one dimension", "Pass a one-dimensional array of texts."
        )
    return [{"number": at + 1, "result": None, "error": None} for at in range(len(texts or ()))]


def _halved(
    db: Database,
    items: Sequence[tuple[int, Any]],
    run: Callable[[Sequence[Any]], Sequence[Any]],
    rows: Sequence[Row],
    on_error: str | None,
) -> dict[int, Any]:
    """Run all items at once. If that fails, run the halves, down to the items that fail alone."""
    if not items:
        return {}
    db.check()  # a run that fails at its first text reaches no model, which would check
    try:
        return dict(zip((at for at, _ in items), run([item for _, item in items]), strict=True))
    except _OF_A_TEXT as error:
        if len(items) == 1:
            _note(rows[items[0][0]], on_error, error)
            return {}
        if on_error == "raise":
            raise
    middle = len(items) // 2
    found = _halved(db, items[:middle], run, rows, on_error)
    return found | _halved(db, items[middle:], run, rows, on_error)


def _try(row: Row, on_error: str | None, step: Callable[[int, str], None], at: int, text: str) -> None:
    try:
        step(at, text)
    except _OF_A_TEXT as error:
        _note(row, on_error, error)


def _note(row: Row, on_error: str | None, error: MindfulError) -> None:
    """Write an error beside the result that it prevented, or raise it."""
    if on_error != "null":
        raise error.about(f"element {row['number']}") from None
    row["error"] = json.dumps({"sqlstate": error.sqlstate, "message": str(error), "hint": error.hint})
