"""Whether another way to an answer helps a model: tried on questions whose answers are known."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from mindful import attempt
from mindful.action import settings
from mindful.attempt import Asking, Attempt
from mindful.call import sampling_of
from mindful.decision import decide, record
from mindful.entry import writing_function
from mindful.errors import InvalidParameterError, NotReadyError, NullValueError
from mindful.gold import Answering, Gold, grade
from mindful.ports import Database, Row

_LEVEL = 0.1


@writing_function
def action_measure(
    db: Database, action: str | None, model: str | None, answers: int | None, max_tokens: int | None
) -> Row:
    """Try another way on labelled questions, and keep what it gained."""
    if action is None or answers is None:
        raise NullValueError("action and answers must not be null", "Give retrieve or retry.")
    if action not in ("retrieve", "retry"):
        raise InvalidParameterError(f'action is "{action}"', "It must be retrieve or retry.")
    if not 1 <= answers <= 10_000:
        raise InvalidParameterError(f"answers is {answers}", "It must be between 1 and 10000.")
    measure = _Measure(db, action, model, max_tokens)
    return db.one(
        """insert into mindful.action_gain
               (action, model, temperature, answers, changed, gained, lost, p_value, helps)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9) returning *""",
        ("text", "text", "real", "integer", "integer", "integer", "integer", "double precision", "boolean"),
        (action, measure.model, measure.temperature, *gain(measure.pairs(answers))),
    )


@dataclass(frozen=True)
class Pair:
    """A flagged answer and the one by another way: would it be replaced, and which of the two are right."""

    changed: bool
    before: bool
    after: bool


def gain(pairs: Sequence[Pair]) -> tuple[int, int, int, int, float, bool]:
    """Count answers, those changed, gained and lost, and tell by an exact sign test whether that helps."""
    changed = [pair for pair in pairs if pair.changed]
    gained = sum(pair.after and not pair.before for pair in changed)
    lost = sum(pair.before and not pair.after for pair in changed)
    p_value = sum(math.comb(gained + lost, k) for k in range(gained, gained + lost + 1)) / 2 ** (
        gained + lost
    )
    return len(pairs), len(changed), gained, lost, p_value, p_value <= _LEVEL


class _Measure:
    """Another way to answers, as the settings in force have it."""

    def __init__(self, db: Database, action: str, model: str | None, max_tokens: int | None) -> None:
        sampling = sampling_of(max_tokens, 0.0, None)
        self._db, self._action, self._settings = db, action, settings(db, None)
        self._answering = Answering(db, model, sampling, None, 0)
        self._asking = Asking(db, sampling)
        self.model = self._answering.model
        self.temperature = self._settings.retry_temperature if action == "retry" else None

    def pairs(self, answers: int) -> list[Pair]:
        """Try gold questions again whose answers are flagged; store and label what that gives."""
        rows = self._db.rows(
            "select * from mindful._action_pending($1, $2, $3)",
            ("text", "text", "integer"),
            (self._action, self.model, answers),
        )
        if not rows:
            raise NotReadyError(
                f'"{self.model}" has no flagged answers to gold questions',
                "Have it answer some whose answers are known, with calibration_import.",
            )
        return [self._pair(row) for row in rows]

    def _pair(self, row: Row) -> Pair:
        started = time.perf_counter()
        before, made = self._tried(row)
        if made is None:
            return Pair(False, row["correct"], row["correct"])
        made.decision.parent_id, made.decision.gold_id = row["decision_id"], row["gold_id"]
        made.decision.answer = made.answer
        made.decision.total_ms = (time.perf_counter() - started) * 1000
        [correct] = grade(self._db, record(self._db, [made.decision]))
        return Pair(made.replaces(before), row["correct"], correct)

    def _tried(self, row: Row) -> tuple[Attempt, Attempt | None]:
        """Return the first answer, and the one by another way; None where nothing is to be tried."""
        gold = Gold(0, row["question"], (), "", row["memories"] or None)
        context = self._answering.context(gold)
        signals = json.loads(row["signals"])
        decision = decide(self._db, self.model, row["with_memory"], signals)
        first = Attempt(self._answering.call(gold, context), context, row["answer"], decision)
        if decision.action == "answer":
            return first, None
        if self._action == "retry":
            return first, attempt.retry(self._asking, first, self._settings.retry_temperature)
        if not self._settings.retrieves(signals):
            return first, None
        return first, attempt.retrieve(self._asking, first, self._settings.retrieve_memories)
