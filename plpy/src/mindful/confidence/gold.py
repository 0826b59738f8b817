"""Gold questions: a model answers them, and its answers are graded by the known answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mindful.confidence import action
from mindful.confidence.attempt import Asking, attach, escalate
from mindful.confidence.decision import Decision, record
from mindful.confidence.evidence import Evidence, gather
from mindful.conversation.prompt import Context
from mindful.conversation.reading import read
from mindful.conversation.reply import Reply, asked, prepared, replies
from mindful.core.entry import writing_function
from mindful.core.errors import InvalidParameterError, MindfulError, NotReadyError, NullValueError
from mindful.core.ports import Database, Generator, ModelSpec, Sampling
from mindful.core.text import seldom
from mindful.generate.call import BLANK, Call, tokens_of
from mindful.generate.sampling import parsed, sampling_of
from mindful.models import runtime

_GRADER_VERSION = 1
AT_ONCE = 64
"""Questions answered in one batch."""


class Gold(NamedTuple):
    """A question and its right answers. An unanswerable question has an empty list."""

    item: int
    """Its position in the array, from 1."""
    question: str
    answers: Sequence[str]
    source: str
    memories: Sequence[str] | None = None


@writing_function
def gold_evaluate(
    db: Database,
    gold: str | None,
    model: str | None,
    source: str | None,
    memories: int | None,
    max_tokens: int | None,
    signal_tier: int | None,
) -> int:
    """Answer gold questions and label the answers."""
    if gold is None:
        raise NullValueError("gold is null", _SHAPE)
    questions = parse(gold, source or "", seldom(db.check))
    if signal_tier is None or not 0 <= signal_tier <= 3:
        raise InvalidParameterError(f"signal_tier is {signal_tier}", "Pass signal_tier between 0 and 3.")
    answering = Answering(db, model, sampling_of(max_tokens, 0.0, None), memories, signal_tier)
    decisions: list[Decision] = []
    followers: list[Decision | None] = []
    for start in range(0, len(questions), AT_ONCE):
        for one in answering.answered(questions[start : start + AT_ONCE]):
            decisions.append(one.decision)
            followers.append(one.second)
    _store(db, questions, decisions, followers)
    return len(questions)


def parse(gold: str, source: str, check: Callable[[], None] = lambda: None) -> list[Gold]:
    """Read a JSON array of questions."""
    items = parsed("gold", gold)
    if not isinstance(items, list):
        raise InvalidParameterError("gold is not a JSON array", _SHAPE)
    found = []
    for number, item in enumerate(items, start=1):
        check()
        found.append(_parsed(item, number, source))
    return found


def _parsed(item: object, number: int, source: str) -> Gold:
    if not isinstance(item, dict):
        raise _broken(number, "is not a JSON object")
    if item.keys() - {"question", "answers", "memories", "source"}:
        raise _broken(number, "has a field other than question, answers, memories and source")
    question, answers = item.get("question"), item.get("answers")
    if not isinstance(question, str) or not question.strip(BLANK):
        raise _broken(number, "has no question")
    if not isinstance(answers, list) or not _texts(answers):
        raise _broken(number, "has no array of answers")
    memories, own = item.get("memories"), item.get("source", source)
    if memories is not None and not (isinstance(memories, list) and _texts(memories)):
        raise _broken(number, "has memories that are not an array of texts")
    if not isinstance(own, str):
        raise _broken(number, "has a source that is not a text")
    if len(own) > _SOURCE_LENGTH:
        raise _broken(number, f"has a source of more than {_SOURCE_LENGTH} characters")
    return Gold(number, question, answers, own, memories)


def _texts(values: Sequence[object]) -> bool:
    return all(isinstance(text, str) and text.strip(BLANK) for text in values)


_SOURCE_LENGTH = 1000
_SHAPE = 'Pass an array of objects, such as [{"question": "Who wrote Hamlet?", "answers": ["Shakespeare"]}].'


def _broken(number: int, problem: str) -> MindfulError:
    return InvalidParameterError(
        f"item {number} of gold {problem}",
        "An item has question, a text, and answers, an array of texts. It may have memories and source.",
    )


class Answered(NamedTuple):
    """What chat shows for a question, and the decisions about it and about the second model's answer, if any."""

    reply: str
    decision: Decision
    second: Decision | None = None


class Answering:
    """Answers gold questions by one model with one sampling, as a new chat would."""

    def __init__(
        self, db: Database, model: str | None, sampling: Sampling, memories: int | None, tier: int
    ) -> None:
        self._db, self._sampling, self._memories, self._tier = db, sampling, memories, tier
        self._spec: ModelSpec
        self._generator: Generator
        self._spec, self._generator = runtime.generator(db, model)
        self.model = self._spec.name

    def answered(self, questions: Sequence[Gold]) -> list[Answered]:
        """Answer questions in one batch, and decide about the replies. Flagged ones may have a second model's too."""
        contexts = [self.context(gold) for gold in questions]
        calls = [self.call(gold, context) for gold, context in zip(questions, contexts, strict=True)]
        places = asked(contexts)
        shown = [contexts[at].memory_ids for at in places]
        texts = Call.answer_many(self._db, [calls[at] for at in places], shown)
        found = list(replies(contexts, texts))
        evidence = self._gathered([contexts[at] for at in places], [found[at].text for at in places])
        of_answer = dict(zip(places, evidence, strict=True))
        return [
            self._decided(calls[at], context, found[at], of_answer.get(at))
            for at, context in enumerate(contexts)
        ]

    def _gathered(self, contexts: Sequence[Context], answers: Sequence[str]) -> list[Evidence]:
        found = gather(self._db, self._spec, contexts, answers, self._sampling, self._tier)
        if failure := next((one.failure for one in found if one.failure is not None), None):
            raise NotReadyError(
                f"signals of tier {self._tier} cannot be gathered: {failure}",
                "Pass a lower signal_tier, or register a default embedder and set the model's fallback.",
            )
        return found

    def _decided(self, call: Call, context: Context, reply: Reply, evidence: Evidence | None) -> Answered:
        wanted = action.Settings()
        if evidence is None:
            call.skip()
            trail = action.without_answer(self._db, wanted, call, context, self._sampling)
        else:
            trail = action.judge(self._db, wanted, call, context, self._sampling, reply)
            attach(trail.decision, evidence)
        first, second = trail.standing, None
        if evidence is not None and evidence.second is not None and first.decision.action != "answer":
            second = escalate(Asking(self._db, self._sampling), first, evidence)
            second.decision.answer = second.answer
        action.withhold(trail)
        first.decision.answer = trail.reply
        return Answered(trail.reply, first.decision, None if second is None else second.decision)

    def context(self, gold: Gold) -> Context:
        """Compose the prompt for a question."""
        memories = self._memories if gold.memories is None else 0
        reading = read(self._db, None, 0, self._spec.name, gold.question)
        return prepared(
            *(self._db, self._spec, self._generator, reading, gold.question, self._sampling, memories),
            given=gold.memories or (),
        )

    def call(self, gold: Gold, context: Context) -> Call:
        """Return the call that answers a question. Errors name the item."""
        try:
            tokens = tokens_of(self._generator, context.messages())
        except MindfulError as error:
            raise error.about(f"item {gold.item} of gold") from None
        # The texts of the tokens tell where an answer repeats itself.
        return Call(self._spec, self._generator, tokens, self._sampling._replace(alternatives=0))


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
    """Label answers to gold questions, and return which are right."""
    rows = db.rows(
        """insert into mindful.outcome (decision_id, correct, grader, grader_version)
           select d.id, _mindful.answer_grade(d.answer, g.answers), 'gold', $2
           from mindful.decision d join mindful.gold g on g.tenant = d.tenant and g.id = d.gold_id
           where d.tenant = (select _mindful.tenant()) and d.id = any ($1)
           order by d.id
           returning correct""",
        ("bigint[]", "integer"),
        (list(decision_ids), _GRADER_VERSION),
    )
    return [row["correct"] for row in rows]
