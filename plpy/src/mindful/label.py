"""Labels by likelihood: how well each label would continue a form, read from the logits. Nothing is generated."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from mindful import runtime
from mindful.call import check_length
from mindful.entry import sql_function
from mindful.errors import InvalidParameterError, NullValueError
from mindful.ports import Database
from mindful.slot import Turn

INSTRUCTION = "Each text gets the label that fits it best."
_STATEMENT = "Labels: true, false"
"""Small models judge a text far better in a form that they complete than as a conversation, and with the statement
below the text (docs/decisions.md)."""
_END = "\n"
_MOST_LABELS = 255


@sql_function
def llm_classify(
    db: Database,
    content: str | None,
    labels: Sequence[str | None] | None,
    instruction: str | None,
    model: str | None,
    subtract_prior: bool | None,
) -> str | None:
    """Choose the label that fits a text best."""
    form = _Form(labels, instruction)
    if content is None:
        return None
    label: str = form.details(_probabilities(db, form, [content], model, subtract_prior)[0])["label"]
    return label


@sql_function
def llm_classify_many(
    db: Database,
    contents: Sequence[str | None] | None,
    labels: Sequence[str | None] | None,
    instruction: str | None,
    model: str | None,
    subtract_prior: bool | None,
) -> list[dict[str, Any]]:
    """Choose labels for many texts, in their order."""
    form = _Form(labels, instruction)
    texts = [text for text in contents or () if text is not None]
    rows = iter(_probabilities(db, form, texts, model, subtract_prior) if texts else ())
    nothing = dict.fromkeys(("label", "probability", "probabilities"))
    return [nothing if text is None else form.details(next(rows)) for text in contents or ()]


@sql_function
def llm_if(db: Database, content: str | None, condition: str | None, model: str | None) -> bool | None:
    """Tell whether a condition holds for a text."""
    if content is None or condition is None:
        return None
    return _truths(db, [content], condition, model)[0]


@sql_function
def llm_if_many(
    db: Database, contents: Sequence[str | None] | None, condition: str | None, model: str | None
) -> list[bool | None] | None:
    """Tell for each of many texts whether a condition holds; NULL for NULL."""
    if contents is None or condition is None:
        return None
    texts = [text for text in contents if text is not None]
    truths = iter(_truths(db, texts, condition, model) if texts else ())
    return [None if text is None else next(truths) for text in contents]


class _Form:
    """A form whose last line lacks its label."""

    def __init__(self, labels: Sequence[str | None] | None, instruction: str | None) -> None:
        self.labels = _checked(labels)
        self._instruction = INSTRUCTION if instruction is None else instruction
        check_length("instruction", self._instruction)
        self.candidates = [f" {_line(label)}" for label in self.labels]

    def filled(self, content: str) -> str:
        """Write a text into the form, as one line: no line of it can pass for one of the form's own."""
        labels = ", ".join(map(_line, self.labels))
        return f"{self._instruction}\nLabels: {labels}\n\nText: {_line(content)}\nLabel:"

    def details(self, probabilities: Sequence[float]) -> dict[str, Any]:
        """Tell a text's labels, as a row of `label_detail`."""
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        rounded = [round(value, 6) for value in probabilities]
        return {
            "label": self.labels[best],
            "probability": probabilities[best],
            "probabilities": json.dumps(dict(zip(self.labels, rounded, strict=True))),
        }


class _Question(_Form):
    """A form that asks whether a statement is true of a text."""

    def __init__(self, condition: str) -> None:
        super().__init__(("true", "false"), None)
        self._condition = _line(condition)

    def filled(self, content: str) -> str:
        return f"{_STATEMENT}\n\nText: {_line(content)}\nStatement: {self._condition}\nLabel:"


def softmax(scores: Sequence[float]) -> list[float]:
    """Turn log-scores into probabilities that add up to 1."""
    best = max(scores)
    weights = [math.exp(score - best) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _probabilities(
    db: Database, form: _Form, contents: Sequence[str], model: str | None, subtract_prior: bool | None
) -> list[list[float]]:
    """Probability of each label for each text: softmax of its mean log-probability, less that for an empty text.

    The subtraction is what Zhao et al. 2021 (arXiv 2102.09690) call contextual calibration: a label that the model
    likes whatever the text is gains nothing by it.
    """
    for content in contents:
        _check("content", content)
    generator = runtime.generator(db, model)[1]
    with Turn(db, wide=len(contents) > 1) as turn:
        prior = [0.0] * len(form.labels)
        if subtract_prior:
            [prior] = generator.score([form.filled("")], form.candidates, _END, turn)
        scores = generator.score([form.filled(content) for content in contents], form.candidates, _END, turn)
    return [softmax([score - base for score, base in zip(row, prior, strict=True)]) for row in scores]


def _truths(db: Database, contents: Sequence[str], condition: str, model: str | None) -> list[bool]:
    _check("condition", condition)
    rows = _probabilities(db, _Question(condition), contents, model, subtract_prior=True)
    return [true > false for true, false in rows]


def _checked(labels: Sequence[str | None] | None) -> list[str]:
    if labels is None or any(label is None for label in labels):
        raise NullValueError("labels is null or holds a null", "Give the labels to choose from.")
    if not 1 <= len(labels) <= _MOST_LABELS:
        raise InvalidParameterError(
            f"there are {len(labels)} labels", f"Give an array of 1 to {_MOST_LABELS} labels."
        )
    texts = [label for label in labels if label is not None]
    for text in texts:
        _check("a label", text)
    lines = [_line(text) for text in texts]
    if twice := [line for at, line in enumerate(lines) if line in lines[:at]]:
        raise InvalidParameterError(f'the label "{twice[0]}" is given twice', "Give each label once.")
    return texts


def _check(name: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidParameterError(f"{name} is an array", "Give a one-dimensional array of texts.")
    check_length(name, text)
    if not _line(text):
        raise InvalidParameterError(f"{name} is empty", "Give a text with at least one visible character.")


def _line(text: str) -> str:
    return " ".join(text.split())
