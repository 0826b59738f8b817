"""Measuring on gold questions whether another way to an answer helps a model."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from mindful.confidence import attempt
from mindful.confidence.action import settings, shown
from mindful.confidence.attempt import Asking, Attempt
from mindful.confidence.decision import decide, record
from mindful.confidence.gold import Answering, Gold, grade
from mindful.confidence.lineage import Lineage
from mindful.core.entry import writing_function
from mindful.core.errors import InvalidParameterError, NotReadyError, NullValueError
from mindful.core.jsontext import loads
from mindful.core.ports import Database, Row
from mindful.core.setting import settings_get
from mindful.generate.sampling import sampling_of

_LEVEL = 0.1


@writing_function
def action_evaluate(
    db: Database, action: str | None, model: str | None, max_answers: int | None, max_tokens: int | None
) -> Row:
    """Try another way on gold questions, and store what it gained."""
    if action is None or max_answers is None:
        raise NullValueError(
            "action or max_answers is null", "Pass retrieve or retry, and leave out max_answers."
        )
    if action not in ("retrieve", "retry"):
        raise InvalidParameterError(f'action is "{action}"', "Pass retrieve or retry.")
    if not 1 <= max_answers <= 10_000:
        raise InvalidParameterError(f"max_answers is {max_answers}", "Pass max_answers between 1 and 10000.")
    measure = _Measure(db, action, model, max_tokens)
    return db.one(
        """insert into mindful.action_gain
               (action, model, temperature, answers, changed, gained, lost, p_value, helps)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9) returning *""",
        ("text", "text", "real", "integer", "integer", "integer", "integer", "double precision", "boolean"),
        (action, measure.model, measure.temperature, *gain(measure.pairs(max_answers))),
    )


class Pair(NamedTuple):
    """A flagged answer and one by another way: whether it is replaced, and whether each is right."""

    changed: bool
    before: bool
    after: bool


def gain(pairs: Sequence[Pair]) -> tuple[int, int, int, int, float, bool]:
    """Return the numbers of answers, changed, gained and lost, and whether an exact sign test shows a gain."""
    changed = [pair for pair in pairs if pair.changed]
    gained = sum(pair.after and not pair.before for pair in changed)
    lost = sum(pair.before and not pair.after for pair in changed)
    p_value = sum(math.comb(gained + lost, k) for k in range(gained, gained + lost + 1)) / 2 ** (
        gained + lost
    )
    return len(pairs), len(changed), gained, lost, p_value, p_value <= _LEVEL


class _Measure:
    """Another way to answers, with the settings in force."""

    def __init__(self, db: Database, action: str, model: str | None, max_tokens: int | None) -> None:
        sampling = sampling_of(max_tokens, 0.0, None)
        self._db, self._action, self._settings = db, action, settings(settings_get(db))
        self._answering = Answering(db, model, sampling, None, 0)
        self._asking = Asking(db, sampling)
        self.model = self._answering.model
        self.temperature = self._settings.chat_retry_temperature if action == "retry" else None

    def pairs(self, max_answers: int) -> list[Pair]:
        """Try gold questions with flagged answers again. Store and label the new answers."""
        rows = self._db.rows(
            "select * from _mindful.action_pending($1, $2, $3)",
            ("text", "text", "integer"),
            (self._action, self.model, max_answers),
        )
        if not rows:
            raise NotReadyError(
                f'"{self.model}" has no flagged answers to gold questions',
                "Evaluate gold questions with gold_evaluate.",
            )
        return [self._pair(row) for row in rows]

    def _pair(self, row: Row) -> Pair:
        started = time.perf_counter()
        before, made = self._tried(row)
        if made is None:
            return Pair(False, row["correct"], row["correct"])
        made.decision.parent_id, made.decision.gold_id = row["decision_id"], row["gold_id"]
        made.decision.answer = shown(made)
        made.decision.total_ms = (time.perf_counter() - started) * 1000
        [correct] = grade(self._db, record(self._db, [made.decision]))
        return Pair(made.replaces(before), row["correct"], correct)

    def _tried(self, row: Row) -> tuple[Attempt, Attempt | None]:
        """Return the first answer and the one by another way, or None if the settings do not try it."""
        gold = Gold(0, row["question"], (), "", row["memories"] or None)
        context = self._answering.context(gold)
        signals = loads(row["signals"])
        decision = decide(self._db, Lineage(self.model), row["with_memory"], signals)
        first = Attempt(self._answering.call(gold, context), context, row["answer"], decision)
        if decision.action == "answer":
            return first, None
        if self._action == "retry":
            return first, attempt.retry(self._asking, first, self._settings.chat_retry_temperature)
        if not self._settings.retrieves(signals):
            return first, None
        return first, attempt.retrieve(self._asking, first, self._settings.chat_retrieve_memories)
