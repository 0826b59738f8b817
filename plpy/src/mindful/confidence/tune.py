"""Tuning of settings by replaying labeled questions with other values."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mindful.confidence.calibrator import prior
from mindful.confidence.evidence import kinds
from mindful.confidence.gold import AT_ONCE, Answering, Gold
from mindful.confidence.signal import features
from mindful.conversation.reply import asked, replies
from mindful.core.entry import writing_function
from mindful.core.errors import InvalidParameterError, NullValueError
from mindful.core.jsontext import loads
from mindful.core.ports import Completion, Database, Row, Sampling
from mindful.core.setting import setting_get
from mindful.core.slot import Turn
from mindful.generate.call import tokens_of
from mindful.models import runtime

if TYPE_CHECKING:
    from mindful.confidence.metric import Check

_FEWEST = 30
"""Minimum of labels to choose a value by, and of labels to test it on."""
_FIRST_SHARE = 2 / 3
"""Share of the labels for the first choice. Later choices use all labels that the last tuning had."""
_LEVEL = 0.05
"""Significance level of the test that a value has to pass."""
_FLIPS = 10_000
_PART = 100
"""Permutations that are drawn at once, of all the _FLIPS."""
_DAYS = 7


@writing_function
def confidence_tune(
    db: Database, model: str | None, max_questions: int | None, max_tokens: int | None
) -> list[dict[str, Any]]:
    """Try other values of settings on labeled questions, and adopt those that do better on newer ones."""
    if max_questions is None or max_tokens is None:
        raise NullValueError("max_questions or max_tokens is null", "Leave it out for the default.")
    for name, value, low in (("max_questions", max_questions, _FEWEST), ("max_tokens", max_tokens, 1)):
        if not low <= value <= 100_000:
            raise InvalidParameterError(f"{name} is {value}", f"Pass {name} between {low} and 100000.")
    name = runtime.find(db, "generator", model).name
    recent = loads(
        db.one("select _mindful.confidence_recent($1, $2) as found", ("text", "integer"), (name, _DAYS))[
            "found"
        ]
    )
    last_outcome = db.one(
        """select coalesce(pg_catalog.max(o.id), 0) as last from mindful.outcome o
           where o.tenant = (select _mindful.tenant())"""
    )["last"]
    knobs = (
        _Temperature(db, name, max_questions, max_tokens),
        _Memories(db, name, max_questions, max_tokens),
        _Tier(db, name, max_questions),
        _Escalation(db, name, max_questions),
    )
    return [_stored(db, name, _tuned(db, knob), recent, last_outcome) for knob in knobs]


class Trial(NamedTuple):
    """The score, tokens and milliseconds of each labeled question with one value."""

    scores: Sequence[float]
    tokens: Sequence[float]
    ms: Sequence[float]

    def mean(self) -> float:
        """Return the mean score."""
        return sum(self.scores) / len(self.scores)

    def figures(self) -> dict[str, float]:
        """Return the means by name."""
        parts = {"score": self.scores, "tokens": self.tokens, "ms": self.ms}
        return {name: round(sum(values) / len(values), 4) for name, values in parts.items() if values}


@dataclass
class Tuning:
    """The result of tuning one setting."""

    key: str
    current_value: Any
    candidate: Any
    adopted: bool
    reason: str
    evidence: dict[str, Any]


class Knob(ABC):
    """A setting, its values and the labeled questions to try them on."""

    key: str

    def __init__(self, db: Database, model: str, questions: int) -> None:
        self._db, self._model, self._questions = db, model, questions
        rows = self._rows()
        seen = db.one(
            """select pg_catalog.max(a.last_outcome) as last from mindful.tuning a
               where a.tenant = (select _mindful.tenant()) and a.model = $1 and a.key = $2
                   and a.evidence ? 'tested'""",
            ("text", "text"),
            (model, self.key),
        )["last"]
        split = int(len(rows) * _FIRST_SHARE)
        if seen is not None:
            split = sum(row["outcome_id"] <= seen for row in rows)
        self.older, self.newer = rows[:split][-questions:], rows[split:][-questions:]

    @property
    def lacks(self) -> str | None:
        """Why there are too few labels for a test, or None."""
        if min(len(self.older), len(self.newer)) >= _FEWEST:
            return None
        return (
            f"{_FEWEST} older and {_FEWEST} newer labels are needed, "
            f"there are {len(self.older)} and {len(self.newer)}"
        )

    @abstractmethod
    def _rows(self) -> Sequence[Row]:
        """Return the labeled questions to replay, the oldest label first."""

    @abstractmethod
    def values(self) -> Sequence[Any]:
        """Return the values to try beside the one in force, the cheapest first."""

    @abstractmethod
    def trial(self, value: Any, rows: Sequence[Row], older: Sequence[Row]) -> Trial:
        """Try a value on labeled questions. Calibrators are fitted to the older ones."""


class _Replay(Knob):
    """A setting that changes answers: gold questions are answered again and graded."""

    def __init__(self, db: Database, model: str, questions: int, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        super().__init__(db, model, questions)

    def _rows(self) -> Sequence[Row]:
        return self._db.rows("select * from _mindful.tuning_gold($1)", ("text",), (self._model,))

    def _answer(self, rows: Sequence[Row], temperature: float, memories: int) -> Trial:
        texts: list[str] = []
        tokens: list[float] = []
        ms: list[float] = []
        generator = runtime.generator(self._db, self._model)[1]
        for at in range(0, len(rows), AT_ONCE):
            batch, started = rows[at : at + AT_ONCE], time.perf_counter()
            samplings = [_sampling(row, self._max_tokens, temperature) for row in batch]
            answering = Answering(self._db, self._model, samplings[0], memories, 0)
            contexts = [answering.context(_gold(row)) for row in batch]
            completions = [Completion() for _ in batch]
            places = asked(contexts)
            prompts = [tokens_of(generator, contexts[at].messages()) for at in places]
            # Not through Call, which adds a row to generation: these answers are shown to no user.
            given = [samplings[at] for at in places], [completions[at] for at in places]
            with Turn(self._db, wide=len(places) > 1, served=generator.served) as turn:
                made = generator.stream_many(prompts, *given, turn) if places else []
            texts += [reply.text for reply in replies(contexts, made)]
            tokens += [len(one.logprobs) for one in completions]
            ms += [(time.perf_counter() - started) * 1000 / len(batch)] * len(batch)
        return Trial(self._graded(texts, rows), tokens, ms)

    def _graded(self, answers: Sequence[str], rows: Sequence[Row]) -> list[float]:
        graded = self._db.rows(
            """select _mindful.answer_grade(p.value ->> 0, array(
                   select pg_catalog.jsonb_array_elements_text(p.value -> 1)))::integer as score
               from pg_catalog.jsonb_array_elements($1) with ordinality p (value, at) order by p.at""",
            ("jsonb",),
            (json.dumps([[text, list(row["answers"])] for text, row in zip(answers, rows, strict=True)]),),
        )
        return [float(row["score"]) for row in graded]


def _sampling(row: Row, max_tokens: int, temperature: float) -> Sampling:
    """Return a sampling with a seed per question. A shared seed would correlate all answers."""
    return Sampling(max_tokens, temperature, None if temperature == 0 else row["outcome_id"] % 2**31)


def _gold(row: Row) -> Gold:
    return Gold(0, row["question"], row["answers"], row["source"], list(row["memories"]) or None)


class _Temperature(_Replay):
    key = "chat_temperature"

    def values(self) -> Sequence[float]:
        return (0.0, 0.3, 0.7, 1.0)

    def trial(self, value: Any, rows: Sequence[Row], older: Sequence[Row]) -> Trial:
        return self._answer(rows, value, setting_get(self._db, "chat_memories"))


class _Memories(_Replay):
    """The number of recalled memories, on questions without memories of their own."""

    key = "chat_memories"

    def _rows(self) -> Sequence[Row]:
        if not self._db.rows("select from mindful.memory where tenant = (select _mindful.tenant()) limit 1"):
            return []
        return [row for row in super()._rows() if not row["memories"]]

    def values(self) -> Sequence[int]:
        return (0, 1, 3, 6)

    def trial(self, value: Any, rows: Sequence[Row], older: Sequence[Row]) -> Trial:
        return self._answer(rows, setting_get(self._db, "chat_temperature"), value)


class _Tier(Knob):
    """The signals to gather, judged by the resulting probabilities on answers that have all of them."""

    key = "signal_tier"
    _highest = 0

    def _rows(self) -> Sequence[Row]:
        for self._highest in (3, 2, 1):
            rows = self._db.rows(
                "select * from _mindful.tuning_signals($1, $2)",
                ("text", "integer"),
                (self._model, self._highest),
            )
            if len(rows) >= 2 * _FEWEST:
                return rows
        return []

    def values(self) -> Sequence[int]:
        return range(self._highest + 1)

    def trial(self, value: Any, rows: Sequence[Row], older: Sequence[Row]) -> Trial:
        scores = [0.0] * len(rows)
        for with_memory in (False, True):
            places = [at for at, row in enumerate(rows) if row["with_memory"] == with_memory]
            training = [row for row in older if row["with_memory"] == with_memory]
            likelihoods = _log_likelihoods(
                training,
                None if rows is older else [rows[at] for at in places],
                features(value, with_memory),
                self._db.check,
            )
            for at, score in zip(places, likelihoods, strict=True):
                scores[at] = score
        steps = kinds(value)
        return Trial(scores, [], [sum(costs.get(kind, 0) for kind in steps) for costs in map(_costs, rows)])


def _costs(row: Row) -> dict[str, float]:
    costs: dict[str, float] = loads(row["signal_ms"])
    return costs


def _log_likelihoods(
    training: Sequence[Row], testing: Sequence[Row] | None, names: Sequence[str], check: Check
) -> Sequence[float]:
    """Return the log-likelihood of each label: of the testing rows, or of the training rows by cross-validation."""
    from mindful.confidence import fit, metric

    answers = fit.of_rows(training)
    others = answers if testing is None else fit.of_rows(testing)
    if not len(others):
        return []
    if len(answers) < _FEWEST:
        probabilities: Any = [prior(int(answers.right.sum()), len(answers))] * len(others)
    elif testing is None:
        probabilities = fit.out_of_fold(answers, names, check=check)
    else:
        probabilities = fit.probabilities(fit.fit(answers, names, check), others)
    losses: Sequence[float] = metric.log_losses(others.right, probabilities).tolist()
    return [-loss for loss in losses]


class _Escalation(Knob):
    """Whether flagged answers are replaced by the fallback's, by the decisions of the time."""

    key = "chat_escalate"

    def _rows(self) -> Sequence[Row]:
        return self._db.rows("select * from _mindful.tuning_chain($1)", ("text",), (self._model,))

    def values(self) -> Sequence[bool]:
        return (False, True)

    def trial(self, value: Any, rows: Sequence[Row], older: Sequence[Row]) -> Trial:
        which = "chain" if value else "first"
        return Trial(
            [float(row[f"{which}_correct"]) for row in rows], [], [row[f"{which}_ms"] for row in rows]
        )


def _tuned(db: Database, knob: Knob) -> Tuning:
    """Choose a value on the older labels, and test it against the one in force on the newer labels."""
    state = db.one("select value, by_hand from _mindful.tuning_current($1)", ("text",), (knob.key,))
    current = loads(state["value"])
    if state["by_hand"]:
        return Tuning(knob.key, current, None, False, "not changed: the user set or undid this setting", {})
    if lacks := knob.lacks:
        return Tuning(knob.key, current, None, False, lacks, {})
    chosen = {value: knob.trial(value, knob.older, knob.older) for value in _with(knob.values(), current)}
    best = max(chosen, key=lambda value: (chosen[value].mean(), value == current))
    evidence: dict[str, Any] = {
        "chosen": {json.dumps(value): trial.figures() for value, trial in chosen.items()},
        "labels": [len(knob.older), len(knob.newer)],
    }
    if best == current:
        return Tuning(
            knob.key,
            current,
            None,
            False,
            f"no value does better than {current} on the older labels",
            evidence,
        )
    mine, other = (knob.trial(value, knob.newer, knob.older) for value in (best, current))
    p = chance([a - b for a, b in zip(mine.scores, other.scores, strict=True)], db.check)
    evidence |= {"tested": {json.dumps(best): mine.figures(), json.dumps(current): other.figures()}, "p": p}
    reason = (
        f"{best} scores {mine.mean():.4f} and {current} {other.mean():.4f} "
        f"on {len(knob.newer)} newer labels, p = {p:.4f}"
    )
    return Tuning(knob.key, current, best, p <= _LEVEL, reason, evidence)


def _with(values: Sequence[Any], current: Any) -> Sequence[Any]:
    return values if current in values else [*values, current]


def chance(gains: Sequence[float], check: Check = lambda: None) -> float:
    """Return the p-value of a mean gain by a one-sided paired randomization test (Fisher 1935)."""
    import numpy as np

    gain, random, reached = np.array(gains), np.random.default_rng(0), 0
    for _ in range(0, _FLIPS, _PART):  # all signs at once would be gigabytes
        check()
        signs = random.choice((-1.0, 1.0), (_PART, len(gain)))
        reached += int((signs @ gain >= gain.sum() - 1e-9).sum())
    return (1 + reached) / (1 + _FLIPS)


def _stored(
    db: Database, model: str, tuning: Tuning, recent: dict[str, Any], last_outcome: int
) -> dict[str, Any]:
    """Change the setting if the value was adopted, store the result, and return a row of `tuning_detail`."""
    change_id = None
    if tuning.adopted:
        change_id = db.one(
            "select _mindful.tuning_change($1, $2, $3) as id",
            ("text", "jsonb", "text"),
            (tuning.key, json.dumps(tuning.candidate), f"{tuning.reason}; replayed with {model}"),
        )["id"]
    tuning.evidence["recent"] = recent
    detail = asdict(tuning) | {"change_id": change_id}
    for name in ("current_value", "candidate", "evidence"):
        detail[name] = None if detail[name] is None else json.dumps(detail[name])
    row = detail | {"model": model, "last_outcome": last_outcome}
    db.rows(
        f"""insert into mindful.tuning ({", ".join(row)})
            values ({", ".join(f"${at}" for at in range(1, len(row) + 1))})""",
        [_TYPES.get(name, "text") for name in row],
        list(row.values()),
    )
    return detail


_TYPES = {
    "current_value": "jsonb",
    "candidate": "jsonb",
    "evidence": "jsonb",
    "adopted": "boolean",
    "change_id": "bigint",
    "last_outcome": "bigint",
}
