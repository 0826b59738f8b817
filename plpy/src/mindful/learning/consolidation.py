"""Consolidation: extracting facts from texts, and resolving and linking them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from mindful.conversation.correction import corrected, is_bare
from mindful.conversation.named import asks_to_forget
from mindful.conversation.restated import corrections
from mindful.core.entry import sql_function
from mindful.core.ports import Database
from mindful.learning.extraction import Statement, rule
from mindful.learning.extraction.link import Links
from mindful.learning.extraction.resolution import Resolver
from mindful.learning.extraction.sentence import TEMPLATE, normal, plain, sentences
from mindful.learning.extraction.store import Store
from mindful.memory.keep import keep

_BATCH = 200
"""Texts whose facts are resolved and written in one batch."""
_ECHO_WORDS = 4
"""Minimum of words of an echo. Two speakers may use the same shorter sentence independently."""


class Text(NamedTuple):
    """A message or a document to extract facts from."""

    id: int
    kind: str
    role: str | None
    content: str
    content_hash: str
    session_id: str | None
    turn: int | None
    speaker: str | None
    at: datetime
    said_next: list[str] | None
    """The user's messages after it, which may correct it."""


@sql_function
def consolidate(
    db: Database,
    run: int,
    since: str | None,
    extractor: str,
    model: str | None,
    memories: int,
    seconds: int | None,
) -> str:
    """Extract facts from the unread texts, and return the counts of the run as JSON."""
    deadline = None if seconds is None else time.monotonic() + seconds
    due = db.rows(
        "select id from _mindful.consolidation_pending($1) limit $2",
        ("timestamptz", "bigint"),
        (since, memories),
    )
    ids = [row["id"] for row in due]
    size = _BATCH if extractor == "rule" else 8
    store = Store(db, run, extractor, model)
    counts: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    for start in range(0, len(ids), size):
        if start and deadline is not None and time.monotonic() > deadline:
            break
        batch = _texts(db, ids[start : start + size])
        _Batch(db, store, model, counts, rejected).read(batch)
    names = ("memories_processed", "facts", "strengthened", "refined", "contradicted", "links")
    return json.dumps({key: counts[key] for key in names} | {"rejected": rejected})


def _texts(db: Database, ids: Sequence[int]) -> list[Text]:
    rows = db.rows(
        """select m.id, m.kind, m.role, m.content, m.content_hash, m.session_id::text, m.turn,
               m.metadata ->> 'speaker' as speaker, _mindful.time_text(m.created_at) as at, n.said_next
           from mindful.memory m
           left join lateral _mindful.said_next(m.session_id, m.turn) n on m.role = 'user'
           where m.tenant = (select _mindful.tenant()) and m.id = any ($1)
           order by m.created_at, m.id""",
        ("bigint[]",),
        (list(ids),),
    )
    return [Text(**dict(row) | {"at": datetime.fromisoformat(row["at"])}) for row in rows]


class _Batch:
    """Texts that are read in one batch."""

    def __init__(
        self, db: Database, store: Store, model: str | None, counts: Counter[str], rejected: Counter[str]
    ) -> None:
        self._db, self._store, self._model = db, store, model
        self._counts, self._rejected = counts, rejected

    def read(self, texts: Sequence[Text]) -> None:
        """Extract facts from texts, and write them with their evidence, entities and links."""
        ids = [text.id for text in texts]
        self._store.forget_lost_quotes(ids)
        bare = [text.id for text in texts if text.role == "user" and is_bare(text.content)]
        if statements := corrections(self._db, bare):
            self._store.forget_quotes([*statements.values()])
        drawn = list(self._statements(texts))
        kept = keep(self._db, ids)  # some may have been forgotten while a model read them
        texts = [text for text in texts if text.id in kept]
        drawn = [(text, statement) for text, statement in drawn if text.id in kept]
        resolver = Resolver(self._store.known({statement.subject for _, statement in drawn}))
        links, facts = Links(), Counter[int]()
        for text, statement in drawn:
            self._db.check()
            fact = resolver.add(statement, text.id, text.at)
            links.add(fact, text.id, text.session_id, text.turn, cause=statement.cause)
            facts[text.id] += 1
        self._store.insert(resolver.news)
        self._counts["strengthened"] += self._store.strengthen(resolver.changed)
        self._store.close([fact for fact in (*resolver.changed, *resolver.news) if fact.superseded_by])
        self._counts["links"] += self._store.link(resolver.news, links)
        self._store.mark([(text.id, text.content_hash, facts[text.id]) for text in texts])
        self._counts["memories_processed"] += len(texts)
        self._counts["facts"] += len(resolver.news)
        self._counts["refined"] += sum(bool(fact.refines) for fact in resolver.news)
        self._counts["contradicted"] += sum(len(fact.contradicts) for fact in resolver.news)

    def _statements(self, texts: Sequence[Text]) -> Iterator[tuple[Text, Statement]]:
        readable = [text for text in texts if self._is_readable(text)]
        others = self._sentences_of_others(readable)
        if self._store.extractor == "model":
            from mindful.learning.extraction.model import statements as by_model

            drawn = by_model(
                self._db, [(text.content, _speaker(text)) for text in readable], self._model, self._rejected
            )
        else:
            drawn = (self._by_rules(text) for text in readable)
        for text, statements in zip(readable, drawn, strict=True):
            for statement in statements:
                if statement.quote not in text.content:
                    self._rejected["quote_not_found"] += 1
                elif _is_echo(statement, text, others):
                    self._rejected["echo"] += 1
                else:
                    yield text, statement

    def _by_rules(self, text: Text) -> list[Statement]:
        return list(rule.statements(text.content, _speaker(text), text.at, self._db.check))

    def _is_readable(self, text: Text) -> bool:
        """Return whether a text is a document or an uncorrected message of the user, and no prompt template."""
        if text.kind == "message" and text.role != "user":
            self._rejected["system_prompt" if text.role == "system" else "generated"] += 1
            return False
        if TEMPLATE.search(text.content):
            self._rejected["template"] += 1
            return False
        if asks_to_forget(text.content):
            self._rejected["to_forget"] += 1
            return False
        # Evidence is quoted, and what the user meant stands in no text. Recall reads the statement as corrected.
        if corrected(text.content, text.said_next or ()) != text.content:
            self._rejected["corrected"] += 1
            return False
        return True

    def _sentences_of_others(self, texts: Sequence[Text]) -> dict[str, _Sentences]:
        """Return the sentences of system prompts and generated messages, by session."""
        sessions = sorted({text.session_id for text in texts if text.session_id})
        rows = self._db.rows(
            """select s.session_id::text, 0 as turn, s.system_prompt as content
               from mindful.session s
               where s.tenant = (select _mindful.tenant()) and s.session_id = any ($1) and s.system_prompt is not null
               union all
               select m.session_id::text, m.turn, m.content
               from mindful.memory m
               where m.tenant = (select _mindful.tenant()) and m.session_id = any ($1) and m.role <> 'user'
               order by 2""",
            ("uuid[]",),
            (sessions,),
        )
        others = {session: _Sentences() for session in sessions}
        for row in rows:
            text = plain(row["content"])
            for start, end in sentences(text, self._db.check):
                others[row["session_id"]].add(normal(text[start:end]), row["turn"])
        return others


def _speaker(text: Text) -> str | None:
    return None if text.kind == "document" else text.speaker or "The user"


class _Sentences:
    """Sentences of a session, indexed by their runs of _ECHO_WORDS words."""

    def __init__(self) -> None:
        self._turns: dict[str, int] = {}
        self._by_run: dict[tuple[str, ...], list[str]] = {}

    def add(self, sentence: str, turn: int) -> None:
        """Add a sentence, in the order of turns."""
        if sentence not in self._turns:
            self._turns[sentence] = turn
            for run in set(_runs(sentence)):
                self._by_run.setdefault(run, []).append(sentence)

    def is_repeated(self, words: str, turn: int) -> bool:
        """Return whether a sentence of an earlier turn contains these words."""
        candidates = [self._by_run.get(run, []) for run in _runs(words)]
        return any(words in one and self._turns[one] < turn for one in min(candidates, key=len, default=[]))


def _runs(words: str) -> Iterator[tuple[str, ...]]:
    listed = words.split()
    return zip(*(listed[at:] for at in range(_ECHO_WORDS)), strict=False)


def _is_echo(statement: Statement, text: Text, others: dict[str, _Sentences]) -> bool:
    """Return whether a quote repeats the system prompt or an earlier generated message."""
    before = others.get(text.session_id or "")
    return before is not None and before.is_repeated(normal(statement.quote), text.turn or 0)
