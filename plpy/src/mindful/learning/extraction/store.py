"""Facts as rows: memories, their statements, evidence, entities and links."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from mindful.core.ports import Database, Row
from mindful.learning.extraction.link import Links, entities
from mindful.learning.extraction.resolution import Fact


class Store:
    """Writes the facts of one run with one SQL statement per table."""

    def __init__(self, db: Database, run: int, extractor: str, model: str | None) -> None:
        self._db, self._run, self.extractor, self._model = db, run, extractor, model

    def forget_lost_quotes(self, ids: Sequence[int]) -> None:
        """Delete evidence whose quote is no longer in its changed text."""
        self._db.rows(
            """select _mindful.delete('memory_evidence', pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                   'id', e.id, 'source_id', e.source_id, 'quote', e.quote)))
               from mindful.memory_extraction x, mindful.memory m, mindful.memory_evidence e
               where x.tenant = (select _mindful.tenant()) and x.id = any ($1)
                   and m.tenant = x.tenant and m.id = x.id and e.tenant = x.tenant and e.source_id = x.id
                   and pg_catalog.strpos(m.content, e.quote) = 0
                   and exists (select from mindful.memory_statement s where s.tenant = e.tenant and s.id = e.id)""",
            ("bigint[]",),
            (list(ids),),
        )

    def forget_quotes(self, ids: Sequence[int]) -> None:
        """Delete the evidence that facts have in texts which the user corrected."""
        self._db.rows(
            """select _mindful.delete('memory_evidence', pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(
                   'id', e.id, 'source_id', e.source_id, 'quote', e.quote)))
               from mindful.memory_evidence e
               where e.tenant = (select _mindful.tenant()) and e.source_id = any ($1)
                   and exists (select from mindful.memory_statement s where s.tenant = e.tenant and s.id = e.id)""",
            ("bigint[]",),
            (list(ids),),
        )

    def known(self, subjects: Iterable[str]) -> list[Fact]:
        """Return the stored facts about these subjects."""
        rows = self._db.rows(
            """select s.subject, s.relation, s.object, s.id,
                   _mindful.time_text(coalesce(m.valid_from, m.created_at)) as at,
                   _mindful.time_text(m.valid_to) as until
               from mindful.memory_statement s join mindful.memory m on m.tenant = s.tenant and m.id = s.id
               where s.tenant = (select _mindful.tenant()) and s.subject = any ($1)
               order by s.id for key share of m""",
            ("text[]",),
            (sorted(subjects),),
        )
        return [
            Fact(
                row["subject"],
                row["relation"],
                row["object"],
                datetime.fromisoformat(row["at"]),
                id=row["id"],
                until=datetime.fromisoformat(row["until"]) if row["until"] else None,
            )
            for row in rows
        ]

    def insert(self, news: Sequence[Fact]) -> None:
        """Insert new facts with their statements, entities and evidence, and set their ids."""
        rows = self._db.rows(
            """insert into mindful.memory (kind, content, metadata, confidence, level, valid_from)
               select 'fact', f.value ->> 'content', f.value -> 'metadata', (f.value ->> 'confidence')::real,
                   'information', (f.value ->> 'at')::timestamptz
               from pg_catalog.jsonb_array_elements($1) with ordinality f (value, number)
               order by f.number returning id""",
            ("jsonb",),
            (json.dumps([_memory(fact) for fact in news]),),
        )
        for fact, row in zip(news, rows, strict=True):
            fact.id = row["id"]
        self._db.rows(
            """insert into mindful.memory_statement
                   (id, subject, relation, object, extractor, model, prior, consolidation_id)
               select f.id, f.subject, f.relation, f.object, $2, $3, f.prior, $4
               from pg_catalog.jsonb_to_recordset($1)
                   f (id bigint, subject text, relation text, object text, prior real)""",
            ("jsonb", "text", "text", "bigint"),
            (
                json.dumps([_statement(fact) for fact in news]),
                self.extractor,
                self._model_name(),
                self._run,
            ),
        )
        self._add_evidence(news)
        self._db.rows(
            """insert into mindful.memory_entity (entity, id)
               select e.entity, e.id from pg_catalog.jsonb_to_recordset($1) e (entity text, id bigint)""",
            ("jsonb",),
            (
                json.dumps(
                    [{"entity": name, "id": fact.id} for fact in news for name in sorted(entities(fact))]
                ),
            ),
        )

    def _model_name(self) -> str | None:
        if self.extractor == "rule":
            return None
        from mindful.models import runtime

        return runtime.find(self._db, "generator", self._model).name

    def _add_evidence(self, facts: Sequence[Fact]) -> int:
        rows = [
            {"id": fact.id, "source_id": source, "quote": quote}
            for fact in facts
            for source, quote in fact.sources
        ]
        return len(
            self._db.rows(
                """insert into mindful.memory_evidence (id, source_id, quote)
                   select e.id, e.source_id, e.quote
                   from pg_catalog.jsonb_to_recordset($1) e (id bigint, source_id bigint, quote text)
                   on conflict do nothing returning 1 as added""",
                ("jsonb",),
                (json.dumps(rows),),
            )
        )

    def strengthen(self, changed: Sequence[Fact]) -> int:
        """Add evidence to stored facts, raise their confidence, and return the number of new quotes."""
        facts = [fact for fact in changed if fact.sources]
        if not facts:
            return 0
        added = self._add_evidence(facts)
        self._db.rows(
            """update mindful.memory m set confidence = c.confidence
               from pg_catalog.unnest($1) f (id),
                   lateral (select _mindful.evidence_confidence((select _mindful.tenant()), f.id) as confidence) c
               where m.tenant = (select _mindful.tenant()) and m.id = f.id
                   and m.confidence is distinct from c.confidence""",
            ("bigint[]",),
            ([fact.id for fact in facts],),
        )
        return added

    def close(self, facts: Sequence[Fact]) -> None:
        """Set the end of facts that are no longer true. Deletes nothing."""
        rows = [
            {"id": fact.id, "until": fact.until.isoformat(), "by": fact.superseded_by.id}
            for fact in facts
            if fact.until and fact.superseded_by
        ]
        if rows:
            self._db.rows(
                """update mindful.memory m
                   set valid_to = greatest(f.until, m.valid_from + interval '1 microsecond'), superseded_by = f.by,
                       valid_to_given = case when m.superseded_by is null then m.valid_to else m.valid_to_given end
                   from pg_catalog.jsonb_to_recordset($1) f (id bigint, until timestamptz, by bigint)
                   where m.tenant = (select _mindful.tenant()) and m.id = f.id""",
                ("jsonb",),
                (json.dumps(rows),),
            )

    def link(self, news: Sequence[Fact], links: Links) -> int:
        """Link new facts to others, and return the number of new links."""
        made = self._db.rows(
            """insert into mindful.memory_link (source_id, target_id, relation, weight)
               select l.source_id, l.target_id, l.relation, l.weight
               from pg_catalog.jsonb_to_recordset($1) l (source_id bigint, target_id bigint, relation text, weight real)
               union
               select n.id, k.id, 'same_entity', 0.4
               from pg_catalog.unnest($2) n (id)
               join mindful.memory_entity e on e.tenant = (select _mindful.tenant()) and e.id = n.id,
                   lateral (
                       select o.id from mindful.memory_entity o
                       where o.tenant = (select _mindful.tenant()) and o.entity = e.entity and o.id < n.id
                       order by o.id desc limit 5
                   ) k
               on conflict do nothing returning 1 as added""",
            ("jsonb", "bigint[]"),
            (json.dumps(links.rows(news)), [fact.id for fact in news]),
        )
        return len(made)

    def mark(self, texts: Sequence[tuple[int, str, int]]) -> None:
        """Record that texts were read. Each is an id, a hash and a number of facts."""
        rows = [{"id": identity, "content_hash": digest, "facts": facts} for identity, digest, facts in texts]
        self._db.rows(
            """insert into mindful.memory_extraction (id, content_hash, extractor, consolidation_id, facts)
               select t.id, t.content_hash, $2, $3, t.facts
               from pg_catalog.jsonb_to_recordset($1) t (id bigint, content_hash text, facts integer)
               on conflict (tenant, id) do update
                   set content_hash = excluded.content_hash, extractor = excluded.extractor,
                       consolidation_id = excluded.consolidation_id, facts = excluded.facts""",
            ("jsonb", "text", "bigint"),
            (json.dumps(rows), self.extractor, self._run),
        )


def _memory(fact: Fact) -> dict[str, Any]:
    statement = fact.statement
    assert statement is not None
    metadata: dict[str, Any] = {"subject": fact.subject, "relation": fact.relation, "object": fact.object}
    if statement.when is not None:
        metadata["date"] = statement.when.date().isoformat()
    sources = len({source for source, _ in fact.sources})
    confidence = min(0.99, 1 - (1 - statement.confidence) * 0.5 ** (sources - 1))
    return {
        "content": statement.content,
        "metadata": metadata,
        "confidence": confidence,
        "at": fact.at.isoformat(),
    }


def _statement(fact: Fact) -> Row:
    statement = fact.statement
    assert statement is not None
    return {
        "id": fact.id,
        "subject": fact.subject,
        "relation": fact.relation,
        "object": fact.object,
        "prior": statement.confidence,
    }
