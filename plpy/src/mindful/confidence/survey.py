"""A first ranking for a model that the package ships none for: it answers questions whose answers are known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mindful.confidence.gold import Answering, Gold, parse
from mindful.confidence.question import questions
from mindful.confidence.ranking import form
from mindful.confidence.signal import features
from mindful.core.entry import sql_function, writing_function
from mindful.core.errors import InvalidParameterError, NotReadyError, NullValueError
from mindful.core.jsontext import loads
from mindful.core.ports import Database, ModelSpec
from mindful.generate.sampling import sampling_of
from mindful.models import runtime

_AT_ONCE = 16
"""Questions answered in one transaction. A cancel loses these only."""
_TOKENS = 64


@writing_function
def model_calibrate(db: Database, name: str | None, gold: str | None, signal_tier: int | None) -> None:
    """Have a model answer questions, a few in each transaction, and fit its rankings to the answers."""
    db.commit()  # This fails within a transaction, before any work is done.
    arguments = ("text", "jsonb", "integer", "integer"), (name, gold, signal_tier, _AT_ONCE)
    # The name has its schema: a procedure that commits cannot pin the search path.
    while db.one("select _mindful.model_calibrate_some($1, $2, $3, $4) as rest", *arguments)["rest"]:
        db.commit()


@sql_function
def model_calibrate_some(
    db: Database, name: str | None, gold: str | None, signal_tier: int | None, most: int
) -> int:
    """Answer some of the questions that have no answer yet, and return how many are left. Then fit the rankings."""
    if name is None:
        raise NullValueError("name is null", "Pass the name of a generator.")
    if signal_tier is None or not 0 <= signal_tier <= 3:
        raise InvalidParameterError(f"signal_tier is {signal_tier}", "Pass signal_tier between 0 and 3.")
    asked = questions() if gold is None else parse(gold, "")
    survey = _Survey(db, runtime.find(db, "generator", name), asked, signal_tier)
    rest = survey.rest()
    survey.answer(rest[:most])
    if len(rest) <= most and not survey.is_fitted():
        survey.fit()
    return max(len(rest) - most, 0)


class _Survey:
    """The questions for one model file in one prompt form, and the answers so far."""

    def __init__(self, db: Database, spec: ModelSpec, asked: Sequence[Gold], tier: int) -> None:
        self._db, self._spec, self._asked, self._tier = db, spec, asked, tier
        self._form = form(spec.options)
        text = json.dumps([spec.sha256, self._form, tier, [one._asdict() for one in asked]], default=list)
        self._survey = hashlib.sha256(text.encode()).hexdigest()

    def rest(self) -> list[Gold]:
        """Return the questions without an answer."""
        rows = self._db.rows(
            "select place from mindful.model_answer where model = $1 and survey = $2",
            ("text", "text"),
            (self._spec.name, self._survey),
        )
        answered = {row["place"] for row in rows}
        return [one for one in self._asked if one.item not in answered]

    def answer(self, asked: Sequence[Gold]) -> None:
        """Answer questions in one batch, and store the signals and whether the answers are right."""
        if not asked:
            return
        sampling = sampling_of(_TOKENS, 0.0, None)
        answered = Answering(self._db, self._spec.name, sampling, 0, self._tier).answered(asked)
        rows = [
            {
                "place": gold.item,
                "answers": list(gold.answers),
                "answer": one.reply,
                "with_memory": one.decision.with_memory,
                "signals": one.decision.signals,
            }
            for gold, one in zip(asked, answered, strict=True)
        ]
        self._db.rows(
            """insert into mindful.model_answer (model, survey, questions, place, with_memory, signals, correct)
               select $1, $2, $3, a.place, a.with_memory, a.signals, _mindful.answer_grade(a.answer, a.answers)
               from pg_catalog.jsonb_to_recordset($4)
                   a (place integer, answers text[], answer text, with_memory boolean, signals jsonb)""",
            ("text", "text", "integer", "jsonb"),
            (self._spec.name, self._survey, len(self._asked), json.dumps(rows)),
        )

    def is_fitted(self) -> bool:
        """Return whether the rankings of these answers are stored."""
        found = self._db.one(
            "select exists (select from mindful.model_ranking where model = $1 and survey = $2) as found",
            ("text", "text"),
            (self._spec.name, self._survey),
        )
        return bool(found["found"])

    def fit(self) -> None:
        """Fit a ranking for each kind of answers and tier, as far as the answers allow."""
        rows = self._db.rows(
            """select with_memory, signals, correct, place from mindful.model_answer
               where model = $1 and survey = $2 and signals <> '{}' order by place""",
            ("text", "text"),
            (self._spec.name, self._survey),
        )
        kinds = [(kind, [row for row in rows if row["with_memory"] == kind]) for kind in (False, True)]
        fitted = [self._fitted(kind, part, tier) for kind, part in kinds for tier in range(self._tier + 1)]
        found = [one for one in fitted if one]
        if not found:
            right = sum(row["correct"] for row in rows)
            raise NotReadyError(
                f'no ranking of "{self._spec.name}" can be fitted: {right} of {len(rows)} answers are right',
                "A fit needs 30 answers of one kind, right and wrong ones. Pass other questions as gold.",
            )
        self._db.rows(
            """insert into mindful.model_ranking (model, survey, sha256, form, with_memory, signal_tier,
                   features, means, scales, weights, intercept, labels, wrong, metrics)
               select model, survey, sha256, form, with_memory, signal_tier,
                   features, means, scales, weights, intercept, labels, wrong, metrics
               from pg_catalog.jsonb_populate_recordset(null::mindful.model_ranking, $1)""",
            ("jsonb",),
            (json.dumps(found),),
        )

    def _fitted(self, with_memory: bool, rows: Sequence[Mapping[str, Any]], tier: int) -> dict[str, Any]:
        from mindful.confidence import fit

        answers = fit.labeled([loads(row["signals"]) for row in rows], [row["correct"] for row in rows])
        if len(answers) < fit.FEWEST or not answers.rare:
            return {}
        names = features(tier, with_memory)
        ranking = fit.fit(answers, names, self._db.check)
        return {
            "model": self._spec.name,
            "survey": self._survey,
            "sha256": self._spec.sha256,
            "form": self._form,
            "with_memory": with_memory,
            "signal_tier": tier,
            "labels": len(answers),
            "wrong": int((~answers.right).sum()),
            "metrics": fit.validated(answers, names, check=self._db.check),
        } | {name: getattr(ranking, name) for name in ("features", "means", "scales", "weights", "intercept")}
