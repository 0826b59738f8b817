"""Replay: the best of what is known, as instruction pairs for training."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mindful import runtime
from mindful.entry import sql_function
from mindful.errors import NotReadyError, UndefinedObjectError
from mindful.extraction import VOLATILE
from mindful.extraction.date import RELATIVE
from mindful.gate import reasons
from mindful.llm import SYSTEM_PROMPT
from mindful.ports import Database, Message, Row

_NEIGHBORS = 3
_HELD_OUT = 10
"""One source in so many is held out for validation."""
_UNTOLD = "I do not know. Nobody has told me."

QUESTIONS = {
    "name": "What is {s} called?",
    "age": "How old is {s}?",
    "birthday": "When was {s} born?",
    "lives_in": "Where does {s} live?",
    "comes_from": "Where does {s} come from?",
    "works_at": "Where does {s} work?",
    "works_as": "What does {s} do for a living?",
    "studies": "What does {s} study?",
    "marital_status": "Is {s} married?",
    "likes": "What is something that {s} likes?",
    "dislikes": "What does {s} dislike?",
    "prefers": "What does {s} prefer?",
    "allergic_to": "What is {s} allergic to?",
    "afraid_of": "What is {s} afraid of?",
    "speaks": "Which language does {s} speak?",
    "has": "What does {s} have?",
    "event": "What is something that {s} has done?",
}
_ABSTAINED = ("birthday", "lives_in", "works_at", "allergic_to", "marital_status", "speaks")
"""What may be asked of anybody, and is not known of most."""


_UNKNOWN = 2
"""Such questions about one subject: a small model that is taught more of them soon abstains from everything."""


@dataclass(frozen=True)
class Sample:
    """One instruction pair, and the facts that it tells of."""

    form: str
    instruction: str
    input: str
    output: str
    facts: tuple[Row, ...]
    refused: tuple[str, ...] = ()

    @property
    def source(self) -> Row:
        """The fact that the pair is about."""
        return self.facts[0]


@sql_function
def replay(db: Database, run: int, model: str, thresholds: str) -> str:
    """Choose facts, make samples of them, and keep those that pass every gate."""
    facts, below = _chosen(db, thresholds)
    specialisation = db.one(
        "select m.specialisation from mindful.model m where m.name = $1", ("text",), (model,)
    )
    samples = list(_samples(db, facts, specialisation["specialisation"]))
    consent = json.loads(db.one("select mindful.setting_get('training_consent')::text as value")["value"])
    judged = list(_judged(samples, consent=bool(consent), fits=_fits(db, model), check=db.check))
    _insert(db, run, model, judged)
    refused = Counter(reason for sample in judged for reason in sample.refused)
    accepted = sum(not sample.refused for sample in judged)
    counts = {
        "memories_processed": len(facts),
        "pairs_generated": accepted,
        "refused": refused,
        "below": below,
    }
    return json.dumps(counts)


@sql_function
def model_training_get(db: Database, run: int) -> str:
    """Tell what training on a run's pairs needs to know of its model."""
    rows = db.rows(
        """select m.name, m.source, m.sha256 as sha256_base, m.prompt_format, m.specialisation, m.lora::text,
               coalesce(m.max_sequence_length, m.context_length) as max_sequence_length
           from mindful.consolidation c join mindful.model m on m.name = c.model
           where c.tenant = (select mindful._tenant()) and c.id = $1 and c.type = 'replay'""",
        ("bigint",),
        (run,),
    )
    if not rows:
        raise UndefinedObjectError(f"there is no replay run {run}", "Your runs are in mindful.consolidation.")
    row = dict(rows[0])
    spec = runtime.find(db, "generator", row["name"])
    system = spec.options.get("system_prompt", SYSTEM_PROMPT)
    told = {"model": row.pop("name"), "lora": json.loads(row.pop("lora")), "system_prompt": system}
    return json.dumps(row | told)


def _chosen(db: Database, thresholds: str) -> tuple[list[Row], Counter[str]]:
    rows = db.rows("select * from mindful._replay_facts($1)", ("jsonb",), (thresholds,))
    rows = [dict(row) | {"evidence": json.loads(row["evidence"] or "[]")} for row in rows]
    below = Counter(row["below"] for row in rows if row["below"])
    chosen = [row for row in rows if not row["below"]]
    if not rows:
        raise NotReadyError("there are no facts", "Run mindful.memory_consolidate() first.")
    if not chosen:
        told = ", ".join(f"{count} below {name}" for name, count in sorted(below.items()))
        raise NotReadyError(
            f"no fact passes the thresholds: {told}", "Lower them in the filter or the settings."
        )
    return chosen[: json.loads(thresholds)["facts"]], below


def _samples(db: Database, facts: Sequence[Row], specialisation: str) -> Iterator[Sample]:
    known = {fact["id"]: fact for fact in facts}
    told = {(fact["subject"], fact["relation"]) for fact in facts}
    for fact in facts:
        rival = known.get(fact["superseded_by"] or fact["contradicted_by"])
        if rival is not None:
            if not fact["valid"]:
                yield _decide(fact, rival)
            continue
        if specialisation == "code_generation":
            yield _apply(fact)
        else:
            yield from _recall(fact)
            yield _explain(fact)
        neighbors = db.rows(
            "select n.neighbor_id as id, n.relation, n.content from mindful._replay_neighbors($1, $2) n",
            ("bigint", "integer"),
            (fact["id"], _NEIGHBORS),
        )
        linked = [known[row["id"]] for row in neighbors if row["id"] in known]
        linked = [other for other in linked if _split(other) == _split(fact)]
        if linked:
            yield _factors(fact, linked)
    yield from _abstain(facts, told)


def _recall(fact: Row) -> Iterator[Sample]:
    question = QUESTIONS.get(fact["relation"])
    if fact["relation"].startswith("favorite_"):
        kind = fact["relation"].removeprefix("favorite_").replace("_", " ")
        question = f"What is {{s}}'s favorite {kind}?"
    if question:
        yield Sample("recall", question.format(s=fact["subject"]), "", fact["content"], (fact,))


def _explain(fact: Row) -> Sample:
    quotes = " ".join(f'"{item["quote"]}"' for item in fact["evidence"][:2])
    asked = f"What does this say about {fact['subject']}?"
    return Sample("explain", asked, quotes, fact["content"], (fact,))


def _factors(fact: Row, linked: Sequence[Row]) -> Sample:
    told = " ".join(other["content"] for other in linked)
    return Sample("factors", "What else is linked to this?", fact["content"], told, (fact, *linked))


def _apply(fact: Row) -> Sample:
    asked = f"Which remembered requirement bears on code that concerns {fact['object']}?"
    quotes = " ".join(f'"{item["quote"]}"' for item in fact["evidence"][:1])
    return Sample("apply", asked, "", f"{fact['content']} It was said: {quotes}", (fact,))


def _decide(old: Row, new: Row) -> Sample:
    first, second = sorted((old, new), key=lambda fact: hashlib.md5(fact["content"].encode()).hexdigest())
    choices = f"A: {first['content']} B: {second['content']}"
    answer = f"{new['content']} It has been so since {new['said']}; before, it was otherwise."
    return Sample("decide", "Which is true now?", choices, answer, (new, old))


def _abstain(facts: Sequence[Row], told: set[tuple[str, str]]) -> Iterator[Sample]:
    """Questions of the kind that is asked about people here, to which there is no answer."""
    first: dict[str, Row] = {}
    for fact in facts:
        first.setdefault(fact["subject"], fact)
    for subject, fact in first.items():
        unknown = [relation for relation in _ABSTAINED if (subject, relation) not in told]
        ranked = sorted((hashlib.md5(f"{subject} {name}".encode()).digest(), name) for name in unknown)
        for _, relation in ranked[:_UNKNOWN]:
            yield Sample("abstain", QUESTIONS[relation].format(s=subject), "", _UNTOLD, (fact,))


def _judged(
    samples: Sequence[Sample], *, consent: bool, fits: Callable[[Sample], bool], check: Callable[[], None]
) -> Iterator[Sample]:
    seen: set[tuple[str, str]] = set()
    for sample in samples:
        check()
        refused = list(reasons(f"{sample.instruction}\n{sample.input}\n{sample.output}"))
        if not consent:
            refused.append("no_consent")
        if any(not fact["evidence"] for fact in sample.facts):
            refused.append("no_evidence")
        current = sample.facts[:1] if sample.form == "decide" else sample.facts
        if any(not fact["valid"] for fact in current):
            refused.append("not_valid")
        if sample.form != "abstain" and any(_is_volatile(fact) for fact in sample.facts):
            refused.append("volatile")
        told = (f"{sample.instruction} {sample.input}".lower(), sample.output.lower())
        if told in seen:
            refused.append("duplicate")
        seen.add(told)
        if len({_split(fact) for fact in sample.facts}) > 1:
            refused.append("mixed_split")
        if not fits(sample):
            refused.append("too_long")
        yield replace(sample, refused=tuple(refused))


def _is_volatile(fact: Row) -> bool:
    return fact["relation"] in VOLATILE or bool(RELATIVE.search(fact["content"]))


def _fits(db: Database, model: str) -> Callable[[Sample], bool]:
    spec, generator = runtime.generator(db, model)
    row = db.one(
        "select m.max_sequence_length as most from mindful.model m where m.name = $1", ("text",), (model,)
    )
    most = min(row["most"] or generator.context_length, generator.context_length)
    system = str(spec.options.get("system_prompt", SYSTEM_PROMPT))

    def fits(sample: Sample) -> bool:
        asked = f"{sample.instruction}\n\n{sample.input}".strip()
        messages = [Message("system", system), Message("user", asked), Message("assistant", sample.output)]
        return len(generator.encode(messages)) <= most

    return fits


def _split(fact: Row) -> str:
    """Hold out by the first source: what is held out was told in other texts than what is trained on."""
    first = min((item["source_id"] for item in fact["evidence"]), default=0)
    return "validation" if hashlib.md5(str(first).encode()).digest()[0] % _HELD_OUT == 0 else "train"


def _insert(db: Database, run: int, model: str, samples: Sequence[Sample]) -> None:
    rows = db.rows(
        """insert into mindful.training_sample
               (consolidation_id, model, form, instruction, input, output, source_id, neighbor_ids, confidence,
                split, refused)
           select $2, $3, s.form, s.instruction, s.input, s.output, s.source_id, s.neighbor_ids, s.confidence,
               s.split, s.refused
           from pg_catalog.jsonb_to_recordset($1) s (number integer, form text, instruction text,
               input text, output text,
               source_id bigint, neighbor_ids bigint[], confidence real, split text, refused text[])
           order by s.number returning id""",
        ("jsonb", "bigint", "text"),
        (json.dumps([_row(number, sample) for number, sample in enumerate(samples)]), run, model),
    )
    pairs = {
        (row["id"], fact["id"]) for row, sample in zip(rows, samples, strict=True) for fact in sample.facts
    }
    db.rows(
        """insert into mindful.training_sample_memory (sample_id, memory_id)
           select p.sample_id, p.memory_id
           from pg_catalog.jsonb_to_recordset($1) p (sample_id bigint, memory_id bigint)""",
        ("jsonb",),
        (json.dumps([{"sample_id": sample, "memory_id": memory} for sample, memory in sorted(pairs)]),),
    )


def _row(number: int, sample: Sample) -> Mapping[str, Any]:
    hidden = {"secret", "personal"} & set(sample.refused)
    texts = {name: None if hidden else getattr(sample, name) for name in ("instruction", "input", "output")}
    return texts | {
        "number": number,
        "form": sample.form,
        "source_id": sample.source["id"],
        "neighbor_ids": [fact["id"] for fact in sample.facts[1:]],
        "confidence": min(fact["confidence"] for fact in sample.facts),
        "split": _split(sample.source),
        "refused": list(sample.refused),
    }
