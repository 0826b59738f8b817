"""Settings chosen by replay: by what other values would have done on labelled questions."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mindful import runtime
from mindful.calibrator import prior
from mindful.call import BLANK, tokens_of
from mindful.entry import writing_function
from mindful.errors import InvalidParameterError, NullValueError
from mindful.evidence import kinds
from mindful.gold import AT_ONCE, Answering, Gold
from mindful.ports import Completion, Database, Row, Sampling
from mindful.setting import setting_get
from mindful.signal import features
from mindful.slot import Turn

if TYPE_CHECKING:
    from mindful.fit import Labelled
    from mindful.metric import Check

_FEWEST = 30
"""Labels that a value is chosen by, and tested on, at least."""
_FIRST_SHARE = 2 / 3
"""Part of the labels that the first choice is made by; later ones are made by all that were there the time before."""
_LEVEL = 0.05
"""Of the test that a value has to pass."""
_FLIPS = 10_000
_DAYS = 7


@writing_function
def confidence_adapt(
    db: Database, model: str | None, questions: int | None, max_tokens: int | None
) -> list[dict[str, Any]]:
    """Try other values of settings on labelled questions, and adopt those that do better on unseen ones."""
    if questions is None or max_tokens is None:
        raise NullValueError("questions and max_tokens must not be null", "Leave them out for the defaults.")
    for name, value, low in (("questions", questions, _FEWEST), ("max_tokens", max_tokens, 1)):
        if not low <= value <= 100_000:
            raise InvalidParameterError(f"{name} is {value}", f"It must be between {low} and 100000.")
    name = runtime.find(db, "generator", model).name
    recent = json.loads(
        db.one("select mindful._confidence_recent($1, $2) as found", ("text", "integer"), (name, _DAYS))[
            "found"
        ]
    )
    last_outcome = db.one(
        """select coalesce(pg_catalog.max(o.id), 0) as last from mindful.outcome o
           where o.tenant = (select mindful._tenant())"""
    )["last"]
    knobs = (
        _Temperature(db, name, questions, max_tokens),
        _Memories(db, name, questions, max_tokens),
        _Tier(db, name, questions),
        _Escalation(db, name, questions),
    )
    return [_stored(db, name, _adapted(db, knob), recent, last_outcome) for knob in knobs]


@dataclass(frozen=True)
class Trial:
    """What one value did on some labelled questions: how good each answer was, and what it cost."""

    scores: Sequence[float]
    tokens: Sequence[float]
    ms: Sequence[float]

    def mean(self) -> float:
        """The mean score."""
        return sum(self.scores) / len(self.scores)

    def figures(self) -> dict[str, float]:
        """Tell it in short."""
        parts = {"score": self.scores, "tokens": self.tokens, "ms": self.ms}
        return {name: round(sum(values) / len(values), 4) for name, values in parts.items() if values}


@dataclass
class Found:
    """What came of one setting."""

    key: str
    held: Any
    candidate: Any
    adopted: bool
    reason: str
    evidence: dict[str, Any]


class Knob(ABC):
    """A setting, its values, and the labelled questions to try them on."""

    key: str

    def __init__(self, db: Database, model: str, questions: int) -> None:
        self._db, self._model, self._questions = db, model, questions
        rows = self._rows()
        seen = db.one(
            """select pg_catalog.max(a.last_outcome) as last from mindful.adaptation a
               where a.tenant = (select mindful._tenant()) and a.model = $1 and a.key = $2
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
        """What is lacking for a test."""
        if min(len(self.older), len(self.newer)) >= _FEWEST:
            return None
        return (
            f"{_FEWEST} labels to choose by and {_FEWEST} newer ones needed, "
            f"{len(self.older)} and {len(self.newer)} there"
        )

    @abstractmethod
    def _rows(self) -> Sequence[Row]:
        """Read what can be replayed, the oldest label first."""

    @abstractmethod
    def values(self) -> Sequence[Any]:
        """List the values to try beside the one in force, the cheapest first."""

    @abstractmethod
    def trial(self, value: Any, rows: Sequence[Row], older: Sequence[Row]) -> Trial:
        """Tell what a value does on labelled questions, by what the older ones taught where they are others."""


class _Replay(Knob):
    """A setting that changes answers: gold questions are answered again, and graded."""

    def __init__(self, db: Database, model: str, questions: int, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        super().__init__(db, model, questions)

    def _rows(self) -> Sequence[Row]:
        return self._db.rows("select * from mindful._adaptation_gold($1)", ("text",), (self._model,))

    def _answer(self, rows: Sequence[Row], temperature: float, memories: int) -> Trial:
        texts: list[str] = []
        tokens: list[float] = []
        ms: list[float] = []
        generator = runtime.generator(self._db, self._model)[1]
        for at in range(0, len(rows), AT_ONCE):
            batch, started = rows[at : at + AT_ONCE], time.perf_counter()
            samplings = [_sampling(row, self._max_tokens, temperature) for row in batch]
            answering = Answering(self._db, self._model, samplings[0], memories, 0)
            prompts = [tokens_of(generator, answering.context(_gold(row)).messages()) for row in batch]
            completions = [Completion() for _ in batch]
            with Turn(self._db, wide=len(batch) > 1) as turn:  # and no row in generation: nobody was answered
                texts += generator.stream_many(prompts, samplings, completions, turn)
            tokens += [len(one.logprobs) for one in completions]
            ms += [(time.perf_counter() - started) * 1000 / len(batch)] * len(batch)
        return Trial(self._graded([text.strip(BLANK) for text in texts], rows), tokens, ms)

    def _graded(self, answers: Sequence[str], rows: Sequence[Row]) -> list[float]:
        graded = self._db.rows(
            """select mindful._answer_grade(p.value ->> 0, array(
                   select pg_catalog.jsonb_array_elements_text(p.value -> 1)))::integer as score
               from pg_catalog.jsonb_array_elements($1) with ordinality p (value, at) order by p.at""",
            ("jsonb",),
            (json.dumps([[text, list(row["answers"])] for text, row in zip(answers, rows, strict=True)]),),
        )
        return [float(row["score"]) for row in graded]


def _sampling(row: Row, max_tokens: int, temperature: float) -> Sampling:
    """Give each question a seed of its own: with one for all, all would have the same luck."""
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
    """How much of what is remembered is shown, on questions that were not given memories of their own."""

    key = "chat_memories"

    def _rows(self) -> Sequence[Row]:
        if not self._db.rows("select from mindful.memory where tenant = (select mindful._tenant()) limit 1"):
            return []
        return [row for row in super()._rows() if not row["memories"]]

    def values(self) -> Sequence[int]:
        return (0, 1, 3, 6)

    def trial(self, value: Any, rows: Sequence[Row], older: Sequence[Row]) -> Trial:
        return self._answer(rows, setting_get(self._db, "chat_temperature"), value)


class _Tier(Knob):
    """Which signals are gathered: judged by the probabilities that they give, on answers that have them all."""

    key = "confidence_tier"
    _highest = 0

    def _rows(self) -> Sequence[Row]:
        for self._highest in (3, 2, 1):
            rows = self._db.rows(
                "select * from mindful._adaptation_signals($1, $2)",
                ("text", "integer"),
                (self._model, self._highest),
            )
            if len(rows) >= 2 * _FEWEST:
                return [dict(row) | {name: json.loads(row[name]) for name in _OBJECTS} for row in rows]
        return []

    def values(self) -> Sequence[int]:
        return range(self._highest + 1)

    def trial(self, value: Any, rows: Sequence[Row], older: Sequence[Row]) -> Trial:
        scores = [0.0] * len(rows)
        for with_memory in (False, True):
            places = [at for at, row in enumerate(rows) if row["with_memory"] == with_memory]
            learned = [row for row in older if row["with_memory"] == with_memory]
            found = _log_likelihoods(
                learned,
                None if rows is older else [rows[at] for at in places],
                features(value, with_memory),
                self._db.check,
            )
            for at, score in zip(places, found, strict=True):
                scores[at] = score
        asked = kinds(value)
        return Trial(scores, [], [sum(row["signal_ms"].get(kind, 0) for kind in asked) for row in rows])


_OBJECTS = ("signals", "signal_ms")


def _log_likelihoods(
    learned: Sequence[Row], told: Sequence[Row] | None, names: Sequence[str], check: Check
) -> Sequence[float]:
    """Log-probability that signals give to what was the case: of others, or of those learned from, left out in turn."""
    from mindful import fit, metric

    answers = _labelled(learned)
    others = answers if told is None else _labelled(told)
    if not len(others):
        return []
    if len(answers) < _FEWEST:
        said: Any = [prior(int(answers.right.sum()), len(answers))] * len(others)
    elif told is None:
        said = fit.out_of_fold(answers, names, check=check)
    else:
        said = fit.probabilities(fit.fit(answers, names, check), others)
    losses: Sequence[float] = metric.log_losses(others.right, said).tolist()
    return [-loss for loss in losses]


def _labelled(rows: Sequence[Row]) -> Labelled:
    from mindful import fit

    return fit.labelled(
        [row["signals"] for row in rows],
        [row["correct"] for row in rows],
        [1 / row["propensity"] for row in rows],
        [row["source"] for row in rows],
    )


class _Escalation(Knob):
    """Whether the fallback's answer is shown where the first is not sure, as both were decided about at the time."""

    key = "escalate"

    def _rows(self) -> Sequence[Row]:
        return self._db.rows("select * from mindful._adaptation_chain($1)", ("text",), (self._model,))

    def values(self) -> Sequence[bool]:
        return (False, True)

    def trial(self, value: Any, rows: Sequence[Row], older: Sequence[Row]) -> Trial:
        which = "chain" if value else "first"
        return Trial(
            [float(row[f"{which}_correct"]) for row in rows], [], [row[f"{which}_ms"] for row in rows]
        )


def _adapted(db: Database, knob: Knob) -> Found:
    """Choose a setting's value on the older labels, and hold it to the newer ones beside the one in force."""
    state = db.one("select value, by_hand from mindful._adaptation_held($1)", ("text",), (knob.key,))
    held = json.loads(state["value"])
    if state["by_hand"]:
        return Found(knob.key, held, None, False, "set by hand, or taken back: left alone", {})
    if lacks := knob.lacks:
        return Found(knob.key, held, None, False, lacks, {})
    chosen = {value: knob.trial(value, knob.older, knob.older) for value in _with(knob.values(), held)}
    best = max(chosen, key=lambda value: (chosen[value].mean(), value == held))
    evidence: dict[str, Any] = {
        "chosen": {json.dumps(value): trial.figures() for value, trial in chosen.items()},
        "labels": [len(knob.older), len(knob.newer)],
    }
    if best == held:
        return Found(
            knob.key, held, None, False, f"none does better than {held} on the older labels", evidence
        )
    mine, other = (knob.trial(value, knob.newer, knob.older) for value in (best, held))
    p = chance([a - b for a, b in zip(mine.scores, other.scores, strict=True)])
    evidence |= {"tested": {json.dumps(best): mine.figures(), json.dumps(held): other.figures()}, "p": p}
    reason = (
        f"{best} scores {mine.mean():.4f} and {held} {other.mean():.4f} "
        f"on {len(knob.newer)} labels not chosen by, p = {p:.4f}"
    )
    return Found(knob.key, held, best, p <= _LEVEL, reason, evidence)


def _with(values: Sequence[Any], held: Any) -> Sequence[Any]:
    return values if held in values else [*values, held]


def chance(gains: Sequence[float]) -> float:
    """Probability of such a mean gain if none were there: a paired randomization test (Fisher 1935), one-sided."""
    import numpy as np

    gain = np.array(gains)
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (_FLIPS, len(gain)))
    reached = int((signs @ gain >= gain.sum() - 1e-9).sum())
    return (1 + reached) / (1 + _FLIPS)


def _stored(
    db: Database, model: str, found: Found, recent: dict[str, Any], last_outcome: int
) -> dict[str, Any]:
    """Change the setting if so, keep what was found, and return it as a row of `adaptation_detail`."""
    change_id = None
    if found.adopted:
        change_id = db.one(
            "select mindful._adaptation_change($1, $2, $3) as id",
            ("text", "jsonb", "text"),
            (found.key, json.dumps(found.candidate), f"{found.reason}; replayed with {model}"),
        )["id"]
    found.evidence["recent"] = recent
    detail = asdict(found) | {"change_id": change_id}
    for name in ("held", "candidate", "evidence"):
        detail[name] = None if detail[name] is None else json.dumps(detail[name])
    row = detail | {"model": model, "last_outcome": last_outcome}
    db.rows(
        f"""insert into mindful.adaptation ({", ".join(row)})
            values ({", ".join(f"${at}" for at in range(1, len(row) + 1))})""",
        [_TYPES.get(name, "text") for name in row],
        list(row.values()),
    )
    return detail


_TYPES = {
    "held": "jsonb",
    "candidate": "jsonb",
    "evidence": "jsonb",
    "adopted": "boolean",
    "change_id": "bigint",
    "last_outcome": "bigint",
}
