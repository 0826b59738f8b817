"""Replay: instruction pairs for training, made of the best facts."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mindful.core.entry import sql_function
from mindful.core.errors import NotReadyError, UndefinedObjectError
from mindful.core.jsontext import loads
from mindful.core.ports import Database, Message, Row
from mindful.generate.call import SYSTEM_PROMPT
from mindful.learning import form
from mindful.learning.curated import USER, read
from mindful.learning.extraction import VOLATILE
from mindful.learning.extraction.date import RELATIVE
from mindful.learning.form import Sample
from mindful.learning.gate import reasons
from mindful.memory.keep import keep
from mindful.models import runtime

_NEIGHBORS = 3
_HELD_OUT = 10
"""One source in _HELD_OUT is held out for validation."""
_UNKNOWN = 2
"""Unanswerable questions per subject. With more of them a small model abstains from every question."""


@sql_function
def replay(db: Database, run: int, model: str, thresholds: str) -> str:
    """Choose facts, make samples of them, and accept those that pass every check. Return the counts as JSON."""
    facts, below = _chosen(db, thresholds, model)
    specialization = db.one(
        "select m.specialization from mindful.model m where m.name = $1", ("text",), (model,)
    )
    samples = list(_samples(db, facts, specialization["specialization"]))
    consent = loads(db.one("select mindful.setting_get('training_consent')::text as value")["value"])
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
def training_model(db: Database, run: int) -> str:
    """Return the model of a run, its file and its training parameters as JSON."""
    rows = db.rows(
        """select m.name, m.source, m.sha256 as sha256_base, m.prompt_format, m.specialization, m.lora::text,
               coalesce(m.max_sequence_length, m.context_length) as max_sequence_length
           from mindful.consolidation c join mindful.model m on m.name = c.model
           where c.tenant = (select _mindful.tenant()) and c.id = $1 and c.type = 'replay'""",
        ("bigint",),
        (run,),
    )
    if not rows:
        raise UndefinedObjectError(
            f"there is no replay run {run}", "List your runs in mindful.consolidation."
        )
    row = dict(rows[0])
    spec = runtime.find(db, "generator", row["name"])
    system = spec.options.get("system_prompt", SYSTEM_PROMPT)
    model = {"model": row.pop("name"), "lora": loads(row.pop("lora")), "system_prompt": system}
    return json.dumps(row | model)


def _chosen(db: Database, thresholds: str, model: str) -> tuple[list[Row], Counter[str]]:
    rows = db.rows("select * from _mindful.replay_facts($1, $2)", ("jsonb", "text"), (thresholds, model))
    rows = [dict(row) | {"evidence": loads(row["evidence"] or "[]")} for row in rows]
    below = Counter(row["below"] for row in rows if row["below"])
    chosen = [row for row in rows if not row["below"]]
    if not rows:
        raise NotReadyError(
            "there are no new facts",
            'Run mindful.memory_consolidate() first, or pass {"again": true} to use facts of earlier runs.',
        )
    if not chosen:
        counts = ", ".join(f"{count} below {name}" for name, count in sorted(below.items()))
        raise NotReadyError(
            f"no fact passes the thresholds: {counts}", "Lower them in the filter or the settings."
        )
    chosen = chosen[: loads(thresholds)["facts"]]
    kept = keep(db, (row["id"] for row in chosen))
    chosen = [row for row in chosen if row["id"] in kept]
    name = _user_name(db, rows)
    return _with_splits([fact for row in chosen for fact in read(row, name)]), below


def _user_name(db: Database, facts: Sequence[Row]) -> str | None:
    """Return the user's name: the setting user_name, or what a fact says."""
    value = loads(db.one("select mindful.setting_get('user_name')::text as value")["value"])
    said = (row["object"] for row in facts if (row["subject"], row["relation"]) == (USER, "name"))
    return value or next(said, None)


def _samples(db: Database, facts: Sequence[Row], specialization: str) -> Iterator[Sample]:
    by_id = {fact["id"]: fact for fact in facts}
    code = specialization == "code_generation"
    usable = [fact for fact in facts if not code or form.code_topic(fact)]
    linkable = {fact["id"]: fact for fact in usable}
    for fact in facts:
        rival = by_id.get(fact["superseded_by"] or fact["contradicted_by"])
        if rival is not None:
            if not fact["valid"]:
                yield form.decide(fact, rival)
            continue
        yield from form.applications(fact) if code else (*form.answerable(fact), *form.unanswered(fact))
        linked = _linked(db, fact, linkable) if fact["id"] in linkable else []
        if linked:
            yield form.factors(fact, linked)
    if not code:
        yield from _changed_links(db, by_id)
    yield from form.unknown(usable, _UNKNOWN, _hints(db, usable, form.cues(code=code)), code=code)


def _changed_links(db: Database, facts: Mapping[int, Row]) -> Iterator[Sample]:
    """Ask for each link between two facts that grew or faded how it changed."""
    rows = db.rows("select * from _mindful.replay_links($1)", ("bigint[]",), (sorted(facts),))
    for row in rows:
        yield form.link(
            facts[row["source_id"]],
            facts[row["target_id"]],
            row["relation"],
            row["weight_first"],
            row["weight"],
        )


def _linked(db: Database, fact: Row, others: Mapping[int, Row]) -> list[Row]:
    rows = db.rows(
        "select n.neighbor_id as id from _mindful.replay_neighbors($1, $2) n",
        ("bigint", "integer"),
        (fact["id"], _NEIGHBORS),
    )
    linked = [others[row["id"]] for row in rows if row["id"] in others]
    return [other for other in linked if other["split"] == fact["split"]]


def _hints(db: Database, facts: Sequence[Row], cues: Mapping[str, str]) -> Callable[[str, str], bool]:
    """Return a function that tells whether a text by or about a subject matches a question's cue.

    The rules extract few of the facts in a text. So a question without a fact may still be answered by a text.
    """
    people = {fact["subject"]: fact["subject"].split("'s ")[0].split(" and others")[0] for fact in facts}
    rows = db.rows(
        """select distinct p.person, c.key
           from mindful.memory m
           join pg_catalog.jsonb_each_text($1) c (key, cue) on m.content ~* c.cue
           join pg_catalog.unnest($2) p (person)
               on p.person = coalesce(m.metadata ->> 'speaker', 'The user')
                   or pg_catalog.strpos(m.content, p.person) > 0
           where m.tenant = (select _mindful.tenant())
               and (m.kind = 'document' or m.kind = 'message' and m.role = 'user')""",
        ("jsonb", "text[]"),
        (json.dumps(dict(cues)), sorted(set(people.values()))),
    )
    hints = {(row["person"], row["key"]) for row in rows}
    return lambda subject, key: (people[subject], key) in hints


def _judged(
    samples: Sequence[Sample], *, consent: bool, fits: Callable[[Sample], bool], check: Callable[[], None]
) -> Iterator[Sample]:
    seen: set[tuple[str, str]] = set()
    answered: set[str] = set()
    shared = [] if consent else ["no_consent"]
    for sample in samples:
        check()
        refused = [*sample.refused, *reasons(sample.text), *shared]
        if any(not fact["evidence"] and not fact["curated"] for fact in sample.facts):
            refused.append("no_evidence")
        current = sample.facts[:1] if sample.form == "decide" else sample.facts
        if any(not fact["valid"] for fact in current):
            refused.append("not_valid")
        has_facts = sample.form != "abstain" or sample.input
        if has_facts and any(_is_volatile(fact) for fact in sample.facts):
            refused.append("volatile")
        pair = (f"{sample.instruction} {sample.input}".lower(), sample.output.lower())
        if pair in seen:
            refused.append("duplicate")
        seen.add(pair)
        if len({fact["split"] for fact in sample.facts}) > 1:
            refused.append("mixed_split")
        if "too_long" not in refused and not fits(sample):
            refused.append("too_long")
        # A model that sees one instruction with several outputs learns none of them. The best fact comes first.
        if not refused:
            refused += ["second_output"] * (pair[0] in answered)
            answered.add(pair[0])
        yield sample._replace(refused=tuple(refused))


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
        prompt = f"{sample.instruction}\n\n{sample.input}".strip()
        messages = [Message("system", system), Message("user", prompt), Message("assistant", sample.output)]
        return len(generator.encode(messages)) <= most

    return fits


def _with_splits(facts: Sequence[Row]) -> list[Row]:
    """Assign each fact to a split by its sources, so that no source is in both splits.

    Facts connected by shared sources form a group, named by its first source. Groups of more than a tenth of the
    facts are in train.
    """
    # A fact that was written as one is its own source.
    sources = [
        [item["source_id"] for item in fact["evidence"]] or ([fact["id"]] if fact["curated"] else [])
        for fact in facts
    ]
    parent: dict[int, int] = {}

    def first(source: int) -> int:
        while parent.setdefault(source, source) != source:
            source = parent[source]
        return source

    for own in sources:
        for source in own:
            low, high = sorted((first(own[0]), first(source)))
            parent[high] = low
    sizes = Counter(first(own[0]) for own in sources if own)
    most = max(1, len(facts) // _HELD_OUT)
    held_out = {source for source, size in sizes.items() if size <= most and _is_held_out(source)}
    return [
        dict(fact) | {"split": "validation" if own and first(own[0]) in held_out else "train"}
        for fact, own in zip(facts, sources, strict=True)
    ]


def _is_held_out(source: int) -> bool:
    return hashlib.md5(str(source).encode()).digest()[0] % _HELD_OUT == 0


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
    is_hidden = {"secret", "personal"} & set(sample.refused)
    texts = {
        name: None if is_hidden else getattr(sample, name) for name in ("instruction", "input", "output")
    }
    return texts | {
        "number": number,
        "form": sample.form,
        "source_id": sample.source["id"],
        "neighbor_ids": [fact["id"] for fact in sample.facts[1:]],
        "confidence": min(fact["confidence"] for fact in sample.facts),
        "split": sample.source["split"],
        "refused": list(sample.refused),
    }
