"""Questions whose answers are known: a model answers them, and its answers are graded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mindful import runtime
from mindful.context import Context, Part, compose
from mindful.decision import Decision, decide_answer, record
from mindful.entry import sql_function
from mindful.errors import InvalidParameterError, MindfulError, NullValueError
from mindful.llm import BLANK, Call, check_fits, sampling_of
from mindful.ports import Database, Generator, ModelSpec, Sampling

_GRADER_VERSION = 1
_AT_ONCE = 64
"""Answers made side by side."""


@dataclass(frozen=True)
class Gold:
    """A question and its right answers, none of them if it has no answer."""

    line: int
    question: str
    answers: Sequence[str]
    source: str
    memories: Sequence[str] | None = None


@sql_function
def calibration_import(
    db: Database,
    gold: str | None,
    model: str | None,
    source: str | None,
    memories: int | None,
    max_tokens: int | None,
) -> int:
    """Answer gold questions, and label the answers."""
    if gold is None:
        raise NullValueError("gold is null", "Give JSON Lines with question and answers.")
    questions = parse(gold, source or "")
    answering = _Answering(db, model, sampling_of(max_tokens, 0.0, None), memories)
    decisions: list[Decision] = []
    for start in range(0, len(questions), _AT_ONCE):
        decisions += answering.decided(questions[start : start + _AT_ONCE])
    _store(db, questions, decisions)
    return len(questions)


def parse(gold: str, source: str) -> list[Gold]:
    """Read JSON Lines; a blank line is none."""
    return [
        _parsed(line, number, source)
        for number, line in enumerate(gold.splitlines(), start=1)
        if line.strip(BLANK)
    ]


def _parsed(line: str, number: int, source: str) -> Gold:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidParameterError(
            f"line {number} of gold is no JSON: {error}", "Give one JSON object a line."
        ) from None
    if not isinstance(found, dict):
        raise _broken(number, "is no JSON object")
    if unknown := sorted(found.keys() - {"question", "answers", "memories", "source"}):
        raise _broken(number, f'has an unknown field "{unknown[0]}"')
    question, answers = found.get("question"), found.get("answers")
    if not isinstance(question, str) or not question.strip(BLANK):
        raise _broken(number, "has no question")
    if not isinstance(answers, list) or not _texts(answers):
        raise _broken(number, "has no array of answers")
    memories, own = found.get("memories"), found.get("source", source)
    if memories is not None and not (isinstance(memories, list) and _texts(memories)):
        raise _broken(number, "has memories that are no array of texts")
    if not isinstance(own, str):
        raise _broken(number, "has a source that is no text")
    if any("\0" in text for text in (question, own, *answers, *(memories or ()))):
        raise _broken(number, "holds NUL")
    return Gold(number, question, answers, own, memories)


def _texts(values: Sequence[object]) -> bool:
    return all(isinstance(text, str) and text.strip(BLANK) for text in values)


def _broken(number: int, what: str) -> MindfulError:
    return InvalidParameterError(
        f"line {number} of gold {what}",
        "A line has question, a text, and answers, an array of texts; and may have memories and source.",
    )


class _Answering:
    """How gold questions are answered."""

    def __init__(self, db: Database, model: str | None, sampling: Sampling, memories: int | None) -> None:
        self._db, self._sampling, self._memories = db, sampling, memories
        self._spec: ModelSpec
        self._generator: Generator
        self._spec, self._generator = runtime.generator(db, model)

    def decided(self, questions: Sequence[Gold]) -> list[Decision]:
        """Answer questions side by side, and decide about the answers."""
        contexts = [self._context(gold) for gold in questions]
        calls = [self._call(gold, context) for gold, context in zip(questions, contexts, strict=True)]
        answers = Call.answer_many(self._db, calls, [context.memory_ids for context in contexts])
        decisions = []
        for call, context, answer in zip(calls, contexts, answers, strict=True):
            decision = decide_answer(self._db, call, context, answer.strip(BLANK))
            decision.answer = answer.strip(BLANK)
            decisions.append(decision)
        return decisions

    def _context(self, gold: Gold) -> Context:
        memories = self._memories if gold.memories is None else 0
        context = compose(
            self._db, self._spec, self._generator, None, gold.question, self._sampling, memories
        )
        if not gold.memories:
            return context
        first, *rest = context.parts
        notes = [Part("memory", "user", text, self._generator.count(text)) for text in gold.memories]
        return replace(context, parts=[first, *notes, *rest])

    def _call(self, gold: Gold, context: Context) -> Call:
        tokens = self._generator.encode(context.messages())
        try:
            check_fits(tokens, self._generator)
        except MindfulError as error:
            raise type(error)(f"line {gold.line} of gold: {error}", error.hint) from None
        return Call(self._spec, self._generator, tokens, self._sampling)


def _store(db: Database, questions: Sequence[Gold], decisions: Sequence[Decision]) -> None:
    rows: list[dict[str, Any]] = [
        {
            "question": gold.question,
            "answers": gold.answers,
            "memories": gold.memories or [],
            "source": gold.source,
        }
        for gold in questions
    ]
    ids = db.rows(
        """insert into mindful.gold (question, answers, memories, source)
           select question, answers, memories, source
           from pg_catalog.jsonb_populate_recordset(null::mindful.gold, $1) returning id""",
        ("jsonb",),
        (json.dumps(rows),),
    )
    for decision, row in zip(decisions, ids, strict=True):
        decision.gold_id = row["id"]
    db.rows(
        """insert into mindful.outcome (decision_id, correct, grader, grader_version)
           select d.id, mindful._answer_grade(d.answer, g.answers), 'gold', $2
           from mindful.decision d join mindful.gold g on g.tenant = d.tenant and g.id = d.gold_id
           where d.tenant = (select mindful._tenant()) and d.id = any ($1)
           order by d.id""",
        ("bigint[]", "integer"),
        (record(db, decisions), _GRADER_VERSION),
    )
