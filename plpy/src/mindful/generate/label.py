"""Classification by the log-probabilities of labels as continuations of a form. No token is generated."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mindful.core.entry import sql_function
from mindful.core.errors import InvalidParameterError, NullValueError
from mindful.core.jsontext import loads
from mindful.core.ports import Database
from mindful.core.slot import Turn
from mindful.core.text import seldom
from mindful.generate.cache import kept
from mindful.generate.call import check_length, spec_identity
from mindful.generate.classifier import trained_classifier
from mindful.generate.sampling import parsed
from mindful.models import runtime

INSTRUCTION = "Each text gets the label that fits it best."
_STATEMENT = "Labels: true, false"
"""Small models classify much better by completing a form than in a conversation, and better with the statement below
the text (docs/decisions.md)."""
_END = "\n"
_MOST_LABELS = 255
"""llama.cpp has 256 sequences in a context. One of them has the beginning that all share."""


@sql_function
def llm_classify(
    db: Database,
    content: str | None,
    labels: Sequence[str | None] | None,
    instruction: str | None,
    model: str | None,
    subtract_prior: bool | None,
    descriptions: str | None,
    examples: str | None,
    classifier: str | None,
) -> str | None:
    """Return the label that fits a text best."""
    classify = classified(db, labels, instruction, model, subtract_prior, descriptions, examples, classifier)
    if content is None:
        return None
    label: str = classify([content])[0]["label"]
    return label


@sql_function
def llm_classify_many(
    db: Database,
    contents: Sequence[str | None] | None,
    labels: Sequence[str | None] | None,
    instruction: str | None,
    model: str | None,
    subtract_prior: bool | None,
    descriptions: str | None,
    examples: str | None,
    classifier: str | None,
) -> list[dict[str, Any] | None] | None:
    """Classify many texts, in their order. NULL gives NULL."""
    classify = classified(db, labels, instruction, model, subtract_prior, descriptions, examples, classifier)
    if contents is None:
        return None
    texts = [text for text in contents if text is not None]
    rows = iter(classify(texts) if texts else ())
    return [None if text is None else next(rows) for text in contents]


def classified(
    db: Database,
    labels: Sequence[str | None] | None,
    instruction: str | None,
    model: str | None,
    subtract_prior: bool | None,
    descriptions: str | None,
    examples: str | None,
    classifier: str | None,
) -> Callable[[Sequence[str]], list[dict[str, Any]]]:
    """Check the arguments of a classification, and return a function that classifies texts."""
    if classifier is not None:
        if (instruction, model, descriptions, examples) != (None, None, None, None):
            raise InvalidParameterError(
                "classifier is passed with instruction, model, descriptions or examples",
                "A trained classifier needs none of them. Leave them out.",
            )
        trained = trained_classifier(db, classifier)
        wished = trained.labels if labels is None else trained.chosen(_checked(labels))
        return lambda texts: [
            _detail(wished, row) for row in trained.probabilities(db, _checked_texts(db, texts), wished)
        ]
    form = _Form(labels, instruction, _descriptions(descriptions), _examples(examples))
    return lambda texts: [
        _detail(form.labels, row) for row in _probabilities(db, form, texts, model, subtract_prior)
    ]


@sql_function
def llm_if(db: Database, content: str | None, condition: str | None, model: str | None) -> bool | None:
    """Return whether a statement is true of a text."""
    if content is None or condition is None:
        return None
    return question_truths(db, condition, model)([content])[0]


@sql_function
def llm_if_many(
    db: Database, contents: Sequence[str | None] | None, condition: str | None, model: str | None
) -> list[bool | None] | None:
    """Return for each of many texts whether a statement is true of it. NULL gives NULL."""
    if contents is None or condition is None:
        return None
    texts = [text for text in contents if text is not None]
    truths = iter(question_truths(db, condition, model)(texts) if texts else ())
    return [None if text is None else next(truths) for text in contents]


class _Form:
    """A form whose last line ends before the label."""

    def __init__(
        self,
        labels: Sequence[str | None] | None,
        instruction: str | None,
        descriptions: Mapping[str, str] | None = None,
        examples: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.labels = _checked(labels)
        self._instruction = INSTRUCTION if instruction is None else instruction
        check_length("instruction", self._instruction)
        self.candidates = [f" {_line(label)}" for label in self.labels]
        for label in [*(descriptions or {}), *(label for _, label in examples)]:
            if label not in self.labels:
                raise InvalidParameterError(
                    f'label "{label}" of descriptions or examples is not in labels',
                    "Pass it in labels as well.",
                )
        described = [f"- {_line(label)}: {_line(text)}" for label, text in (descriptions or {}).items()]
        self._head = "\n".join(
            [self._instruction, f"Labels: {', '.join(map(_line, self.labels))}", *described, ""]
        )
        self._head += "".join(f"\nText: {_line(text)}\nLabel: {_line(label)}\n" for text, label in examples)

    def filled(self, content: str) -> str:
        """Return the form with a text on one line, so that no line of the text looks like a line of the form."""
        return f"{self._head}\nText: {_line(content)}\nLabel:"


def _detail(labels: Sequence[str], probabilities: Sequence[float]) -> dict[str, Any]:
    """Return a row of `label_detail`."""
    best = max(range(len(probabilities)), key=probabilities.__getitem__)
    rounded = [round(value, 6) for value in probabilities]
    return {
        "label": labels[best],
        "probability": probabilities[best],
        "probabilities": json.dumps(dict(zip(labels, rounded, strict=True))),
    }


def _descriptions(descriptions: str | None) -> dict[str, str]:
    if descriptions is None:
        return {}
    check_length("descriptions", descriptions)
    found = parsed("descriptions", descriptions)
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise InvalidParameterError(
            "descriptions is not an object of texts",
            'Pass an object such as {"urgent": "Someone cannot work."}.',
        )
    return found


def _examples(examples: str | None) -> list[tuple[str, str]]:
    if examples is None:
        return []
    check_length("examples", examples)
    found = parsed("examples", examples)
    if not isinstance(found, list) or not all(map(_is_example, found)):
        raise InvalidParameterError(
            "examples is not an array of objects with the fields content and label",
            'Pass an array such as [{"content": "The server is down.", "label": "urgent"}].',
        )
    return [(example["content"], example["label"]) for example in found]


def _is_example(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"content", "label"}
        and all(isinstance(text, str) and _line(text) for text in value.values())
    )


class _Question(_Form):
    """A form that asks whether a statement is true of a text."""

    def __init__(self, condition: str) -> None:
        super().__init__(("true", "false"), None)
        self._condition = _line(condition)

    def filled(self, content: str) -> str:
        return f"{_STATEMENT}\n\nText: {_line(content)}\nStatement: {self._condition}\nLabel:"


def softmax(scores: Sequence[float]) -> list[float]:
    """Turn log scores into probabilities that add up to 1."""
    best = max(scores)
    weights = [math.exp(score - best) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _probabilities(
    db: Database, form: _Form, contents: Sequence[str], model: str | None, subtract_prior: bool | None
) -> list[list[float]]:
    """Return each label's probability for each text: a softmax of the labels' mean log-probabilities.

    With subtract_prior the score for an empty text is subtracted first (contextual calibration, Zhao et al. 2021, arXiv
    2102.09690). A label that the model prefers for every text has no advantage then.
    """
    forms = []
    look = seldom(db.check)
    for content in contents:
        look()
        _check("content", content)
        forms.append(form.filled(content))
    spec, generator = runtime.generator(db, model)

    def computed(missing: Sequence[int]) -> list[str]:
        texts = [forms[at] for at in missing]
        with Turn(db, wide=len(texts) > 1, served=generator.served) as turn:
            prior = [0.0] * len(form.labels)
            if subtract_prior:
                [prior] = generator.score([form.filled("")], form.candidates, _END, turn)
            scores = generator.score(texts, form.candidates, _END, turn)
        rows = ([score - base for score, base in zip(row, prior, strict=True)] for row in scores)
        return [json.dumps(softmax(row)) for row in rows]

    asked = (*spec_identity(spec), form.candidates, subtract_prior)
    return [loads(row) for row in kept(db, [(*asked, text) for text in forms], computed)]


def question_truths(db: Database, condition: str, model: str | None) -> Callable[[Sequence[str]], list[bool]]:
    """Return a function that tells for each text whether a statement is true of it."""
    _check("condition", condition)
    question = _Question(condition)
    return lambda texts: [
        true > false for true, false in _probabilities(db, question, texts, model, subtract_prior=True)
    ]


def _checked_texts(db: Database, texts: Sequence[str]) -> Sequence[str]:
    look = seldom(db.check)
    for text in texts:
        look()
        _check("content", text)
    return texts


def _checked(labels: Sequence[str | None] | None) -> list[str]:
    if labels is None or any(label is None for label in labels):
        raise NullValueError("labels is null or contains a null", "Pass the labels to choose from.")
    if not 1 <= len(labels) <= _MOST_LABELS:
        raise InvalidParameterError(
            f"labels has {len(labels)} elements", f"Pass an array of 1 to {_MOST_LABELS} labels."
        )
    texts = [label for label in labels if label is not None]
    for text in texts:
        _check("a label", text)
    lines = [_line(text) for text in texts]
    if twice := [line for at, line in enumerate(lines) if line in lines[:at]]:
        raise InvalidParameterError(f'label "{twice[0]}" is repeated', "Pass each label once.")
    return texts


def _check(name: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidParameterError(f"{name} is an array", "Pass a one-dimensional array of texts.")
    check_length(name, text)
    if not _line(text):
        raise InvalidParameterError(f"{name} is empty", "Pass a text with at least one visible character.")


def _line(text: str) -> str:
    return " ".join(text.split())
