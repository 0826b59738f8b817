"""Questions whose answers are known: a model answers them, and its answers are graded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mindful import runtime
from mindful.attempt import Asking, Attempt, attach, escalate
from mindful.call import BLANK, Call, sampling_of, tokens_of
from mindful.context import compose
from mindful.decision import Decision, decide_answer, record
from mindful.entry import writing_function
from mindful.errors import InvalidParameterError, MindfulError, NotReadyError, NullValueError
from mindful.evidence import Evidence, gather
from mindful.ports import Database, Generator, ModelSpec, Sampling
from mindful.prompt import Context, Part

_GRADER_VERSION = 1
AT_ONCE = 64
"""Answers made side by side."""


@dataclass(frozen=True)
class Gold:
    """A question and its right answers, none of them if it has no answer."""

    line: int
    question: str
    answers: Sequence[str]
    source: str
    memories: Sequence[str] | None = None


@writing_function
def calibration_import(
    db: Database,
    gold: str | None,
    model: str | None,
    source: str | None,
    memories: int | None,
    max_tokens: int | None,
    tier: int | None,
) -> int:
    """Answer gold questions, and label the answers."""
    if gold is None:
        raise NullValueError("gold is null", "Give JSON Lines with question and answers.")
    questions = parse(gold, source or "")
    if tier is None or not 0 <= tier <= 3:
        raise InvalidParameterError(f"tier is {tier}", "It must be between 0 and 3.")
    answering = Answering(db, model, sampling_of(max_tokens, 0.0, None), memories, tier)
    decisions: list[Decision] = []
    followers: list[Decision | None] = []
    for start in range(0, len(questions), AT_ONCE):
        for first, second in answering.decided(questions[start : start + AT_ONCE]):
            decisions.append(first)
            followers.append(second)
    _store(db, questions, decisions, followers)
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


class Answering:
    """How gold questions are answered."""

    def __init__(
        self, db: Database, model: str | None, sampling: Sampling, memories: int | None, tier: int
    ) -> None:
        self._db, self._sampling, self._memories, self._tier = db, sampling, memories, tier
        self._spec: ModelSpec
        self._generator: Generator
        self._spec, self._generator = runtime.generator(db, model)
        self.model = self._spec.name

    def decided(self, questions: Sequence[Gold]) -> list[tuple[Decision, Decision | None]]:
        """Answer questions side by side; decide about the answers, and a second model's where they are flagged."""
        contexts = [self.context(gold) for gold in questions]
        calls = [self.call(gold, context) for gold, context in zip(questions, contexts, strict=True)]
        texts = Call.answer_many(self._db, calls, [context.memory_ids for context in contexts])
        answers = [text.strip(BLANK) for text in texts]
        evidence = gather(self._db, self._spec, contexts, answers, self._sampling, self._tier)
        return [
            self._decide(call, context, answer, found)
            for call, context, answer, found in zip(calls, contexts, answers, evidence, strict=True)
        ]

    def _decide(
        self, call: Call, context: Context, answer: str, found: Evidence
    ) -> tuple[Decision, Decision | None]:
        if found.failure is not None:
            raise NotReadyError(
                f"signals of tier {self._tier} cannot be gathered: {found.failure}",
                "Ask for a lower tier, or register what is lacking: a default embedder, the model's fallback.",
            )
        first = decide_answer(self._db, call, context, answer)
        first.answer = answer
        attach(first, found)
        if found.second is None or first.action == "answer":
            return first, None
        second = escalate(Asking(self._db, self._sampling), Attempt(call, context, answer, first), found)
        second.decision.answer = second.answer
        return first, second.decision

    def context(self, gold: Gold) -> Context:
        """Put together what the model is shown for a question."""
        memories = self._memories if gold.memories is None else 0
        context = compose(
            self._db, self._spec, self._generator, None, gold.question, self._sampling, memories
        )
        if not gold.memories:
            return context
        first, *rest = context.parts
        notes = [Part("memory", "user", text, self._generator.count(text)) for text in gold.memories]
        return replace(context, parts=[first, *notes, *rest])

    def call(self, gold: Gold, context: Context) -> Call:
        """Make the call that answers it."""
        try:
            tokens = tokens_of(self._generator, context.messages())
        except MindfulError as error:
            raise type(error)(f"line {gold.line} of gold: {error}", error.hint) from None
        return Call(self._spec, self._generator, tokens, self._sampling)


def _store(
    db: Database,
    questions: Sequence[Gold],
    decisions: Sequence[Decision],
    followers: Sequence[Decision | None],
) -> None:
    rows: list[dict[str, Any]] = [
        {
            "question": gold.question,
            "answers": gold.answers,
            "memories": gold.memories or [],
            "source": gold.source,
        }
        for gold in questions
    ]
    gold_ids = db.rows(
        """insert into mindful.gold (question, answers, memories, source)
           select question, answers, memories, source
           from pg_catalog.jsonb_populate_recordset(null::mindful.gold, $1) returning id""",
        ("jsonb",),
        (json.dumps(rows),),
    )
    for decision, row in zip(decisions, gold_ids, strict=True):
        decision.gold_id = row["id"]
    ids = record(db, decisions)
    for parent, decision, follower in zip(ids, decisions, followers, strict=True):
        if follower is not None:
            follower.parent_id, follower.gold_id = parent, decision.gold_id
    ids += record(db, [follower for follower in followers if follower is not None])
    grade(db, ids)


def grade(db: Database, decision_ids: Sequence[int]) -> list[bool]:
    """Label answers to gold questions, and tell which are right."""
    rows = db.rows(
        """insert into mindful.outcome (decision_id, correct, grader, grader_version)
           select d.id, mindful._answer_grade(d.answer, g.answers), 'gold', $2
           from mindful.decision d join mindful.gold g on g.tenant = d.tenant and g.id = d.gold_id
           where d.tenant = (select mindful._tenant()) and d.id = any ($1)
           order by d.id
           returning correct""",
        ("bigint[]", "integer"),
        (list(decision_ids), _GRADER_VERSION),
    )
    return [row["correct"] for row in rows]
