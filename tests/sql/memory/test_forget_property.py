"""After any sequence of calls, forgetting takes what is named and what depends on it alone, and nothing else."""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, Connect, one
from support.memories import remember

Row = dict[str, Any]
Rows = dict[str, dict[str, Row]]

TEXTS = (
    "I live in Oslo.",
    "I live in Bergen.",
    "I have a dog.",
    "My sister lives in Oslo.",
    "My PIN is 9821.",
    "Tea.",
)
NAMES = ("manual.txt", "notes.txt")
BOOKKEEPING = {"memory_count", "forget_receipt", "setting"}
"""Tables whose rows are counts of others, or what forgetting itself leaves."""
tenants = count(1)


class Tables:
    """The rows of one tenant, table by table."""

    def __init__(self, db: psycopg.Connection) -> None:
        self._db = db
        self.keys: dict[str, list[str]] = dict(
            db.execute(
                """select c.relname, array_agg(a.attname::text order by a.attnum)
                   from pg_class c join pg_index i on i.indrelid = c.oid and i.indisprimary
                   join pg_attribute a on a.attrelid = c.oid
                       and a.attnum = any ((i.indkey::smallint[])[0:i.indnkeyatts - 1])
                   where c.relnamespace = 'mindful'::regnamespace and c.relkind = 'r' group by 1"""
            ).fetchall()
        )
        self.references = db.execute(
            """select f.conrelid::regclass::text, c.attname, f.confrelid::regclass::text, p.attname
               from pg_constraint f
               join pg_attribute c on c.attrelid = f.conrelid and c.attnum = f.conkey[2]
               join pg_attribute p on p.attrelid = f.confrelid and p.attnum = f.confkey[2]
               where f.contype = 'f' and f.connamespace = 'mindful'::regnamespace and cardinality(f.conkey) = 2"""
        ).fetchall()
        tables = [name for name, key in self.keys.items() if "tenant" in key and name not in BOOKKEEPING]
        self._query = " union all ".join(
            f"select '{name}', to_jsonb(t) from mindful.{name} t where t.tenant = %(tenant)s"
            for name in tables
        )

    def read(self, tenant: str) -> Rows:
        """Return the rows by table and key."""
        rows: Rows = {name: {} for name in self.keys}
        for table, row in self._db.execute(self._query.encode(), {"tenant": tenant}):
            rows[table][str([row[column] for column in self.keys[table]])] = row
        return rows


def changes(before: Rows, after: Rows) -> dict[tuple[str, str], int]:
    """Count what went and what changed, as a receipt does."""
    counts = {}
    for table, rows in before.items():
        assert not after[table].keys() - rows.keys(), f"{table} has new rows"
        counts[table, "deleted"] = len(rows.keys() - after[table].keys())
        counts[table, "changed"] = sum(rows[key] != row for key, row in after[table].items())
    return {what: number for what, number in counts.items() if number}


def by_id(rows: Rows) -> dict[int, Row]:
    return {row["id"]: row for row in rows["memory"].values()}


def goes(rows: Rows, named: set[int], versions: bool, copies: bool) -> set[int]:
    """Tell what forgetting some memories must take: the rules, once more and as plainly as can be."""
    memories, gone = by_id(rows), set(named)
    sources: dict[int, set[int]] = {identity: set() for identity in memories}
    for row in rows["memory_evidence"].values():
        sources[row["id"]].add(row["source_id"])

    def is_due(memory: Row) -> bool:
        own = sources[memory["id"]]
        if memory["kind"] == "summary" and own & gone:
            return True
        is_said = memory["kind"] == "message" or (
            memory["kind"] == "document" and "chunk" in memory["metadata"]
        )
        if own and own <= gone and not memory["stated"] and not is_said:
            return True
        newer = memory["superseded_by"] in gone
        older = any(memories[other]["superseded_by"] == memory["id"] for other in gone)
        if versions and not own and (newer or older):
            return True
        return (
            copies
            and memory["kind"] != "message"
            and any(memories[other]["content"] == memory["content"] for other in gone)
        )

    while more := {identity for identity in memories.keys() - gone if is_due(memories[identity])}:
        gone |= more
    return gone


def heir(memories: dict[int, Row], gone: set[int], identity: int) -> int | None:
    """Return the first version after one that stays."""
    following: int | None = memories[identity]["superseded_by"]
    while following in gone:
        following = memories[following]["superseded_by"]
    return following


class Forgetting(RuleBasedStateMachine):
    """One tenant who remembers, talks, changes and forgets."""

    connection: psycopg.Connection
    tables: Tables

    def __init__(self) -> None:
        super().__init__()
        self.tenant = f"tenant {next(tenants)}"
        self.run("select set_config('mindful.tenant', %s, false)", self.tenant)

    def run(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode(), parameters).fetchall()

    def ids(self, condition: str = "true") -> list[int]:
        return [row[0] for row in self.run(f"select id from memory where {condition} order by id")]

    def some(self, data: st.DataObject, condition: str = "true") -> int | None:
        found = self.ids(condition)
        return data.draw(st.sampled_from(found)) if found else None

    @initialize(duplicates=st.sampled_from(("keep", "join_exact")))
    def begins(self, duplicates: str) -> None:
        self.run("select setting_set('memory_duplicates', %s)", Jsonb(duplicates))

    # What is remembered.

    @rule(
        text=st.sampled_from(TEXTS[-2:]),
        kind=st.sampled_from(("fact", "fact", "fact", "summary", "reflection")),
        data=st.data(),
    )
    def remembers(self, text: str, kind: str, data: st.DataObject) -> None:
        found = self.ids()
        sources = data.draw(st.lists(st.sampled_from(found), max_size=2, unique=True)) if found else []
        quotes = dict(self.run("select id, content from memory"))
        evidence = [{"source_id": source, "quote": quotes[source]} for source in sources]
        remember(self.connection, text, kind=kind, evidence=evidence)

    @rule(texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3), data=st.data())
    def talks(self, texts: list[str], data: st.DataObject) -> None:
        sessions = [row[0] for row in self.run("select session_id from session order by created_at")]
        session = data.draw(st.sampled_from([None, *sessions]))
        if session is None:
            [(session,)] = self.run("select session_start(%s)", texts[0])
        messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
        self.run("select message_insert_many(%s, %s)", session, Jsonb(messages))

    @rule(data=st.data())
    def is_told_again(self, data: st.DataObject) -> None:
        fact, message = (
            self.some(data, "kind = 'fact' and source is null"),
            self.some(data, "kind = 'message'"),
        )
        if fact is not None and message is not None:
            [(text,)] = self.run("select content from memory where id = %s", fact)
            [(quote,)] = self.run("select content from memory where id = %s", message)
            remember(self.connection, text, evidence=[{"source_id": message, "quote": quote}])

    @rule(text=st.sampled_from(TEXTS))
    def chats(self, text: str) -> None:
        self.run("select llm_chat(%s, model => %s)", text, SCRIPTED_GENERATOR)

    @rule(
        name=st.sampled_from(NAMES),
        texts=st.lists(st.sampled_from(TEXTS), min_size=1, max_size=2, unique=True),
    )
    def reads(self, name: str, texts: list[str]) -> None:
        parts = [{"key": str(n), "content": text} for n, text in enumerate(texts)]
        self.run("select document_insert_parts(%s, %s)", name, Jsonb(parts))

    @rule(text=st.sampled_from(TEXTS), data=st.data())
    def updates(self, text: str, data: st.DataObject) -> None:
        fact = self.some(data, "kind = 'fact' and superseded_by is null")
        if fact is not None:
            self.run("select memory_update(%s, %s)", fact, text)

    @rule(data=st.data())
    def links(self, data: st.DataObject) -> None:
        first, second = self.some(data), self.some(data)
        if first != second:
            self.run("select memory_link_insert(%s, %s, 'about')", first, second)

    @rule()
    def consolidates(self) -> None:
        assert self.run("select error from memory_consolidate()") == [(None,)]

    # What is forgotten.

    @rule(data=st.data(), copies=st.booleans())
    def forgets_ids(self, data: st.DataObject, copies: bool) -> None:
        found = self.ids()
        if found:
            named = data.draw(st.lists(st.sampled_from(found), min_size=1, max_size=2, unique=True))
            self.forgets("ids => %s", named, set(named), versions=True, copies=copies)

    @rule(data=st.data(), copies=st.booleans())
    def forgets_a_session(self, data: st.DataObject, copies: bool) -> None:
        sessions = [row[0] for row in self.run("select session_id from session order by created_at")]
        if sessions:
            session = data.draw(st.sampled_from(sessions))
            named = set(self.ids(f"session_id = '{session}'"))
            self.forgets("session_id => %s", session, named, copies=copies, session=str(session))

    @rule(
        chosen=st.sampled_from(
            (
                ({"kind": "fact"}, "kind = 'fact'"),
                ({"content": "oslo"}, "strpos(content, 'Oslo') > 0"),
                ({"source": NAMES[0]}, f"source = '{NAMES[0]}'"),
                ({"role": "user"}, "role = 'user'"),
            )
        )
    )
    def forgets_by_a_filter(self, chosen: tuple[Row, str]) -> None:
        self.forgets("filter => %s", Jsonb(chosen[0]), set(self.ids(chosen[1])))

    @rule(name=st.sampled_from(NAMES))
    def forgets_a_document(self, name: str) -> None:
        named = set(self.ids(f"source = '{name}'"))
        if named:
            before = self.tables.read(self.tenant)
            assert self.run("select document_delete(%s)", name) == [(len(named),)]
            self.check(before, goes(before, named, False, False))

    @rule(kind=st.sampled_from(("message", "fact", "document")))
    def prunes(self, kind: str) -> None:
        before = self.tables.read(self.tenant)
        named = set(self.ids(f"kind = '{kind}'"))
        self.run("select memory_prune(max_count => 0, kinds => array[%s])", kind)
        self.check(before, named, wished=False)

    def forgets(
        self,
        argument: str,
        value: object,
        named: set[int],
        *,
        versions: bool = False,
        copies: bool = False,
        session: str = "",
    ) -> None:
        before = self.tables.read(self.tenant)
        call = f"select relation, action, rows from memory_forget({argument}, copies => %s, dry_run => %s)"
        planned = self.run(call, value, copies, True)
        assert self.tables.read(self.tenant) == before
        assert sorted(self.run(call, value, copies, False)) == sorted(planned)
        self.check(before, goes(before, named, versions, copies), session=session)

    def check(self, before: Rows, expected: set[int], *, wished: bool = True, session: str = "") -> None:
        after = self.tables.read(self.tenant)
        memories, left = by_id(before), by_id(after)
        gone = memories.keys() - left.keys()
        assert gone == expected
        sessions = {row["session_id"] for row in before["session"].values()}
        assert sessions - {row["session_id"] for row in after["session"].values()} == (
            {session} if session else set()
        )
        self.check_receipt(before, after, gone)
        for table, column, target, key in self.tables.references:
            known = {row[key] for row in after[target].values()}
            assert {row[column] for row in after[table].values()} - known <= {None}, (
                f"{table}.{column} dangles"
            )
        for table, rows in before.items():
            for key in rows.keys() - after[table].keys():
                assert self.depends(table, rows[key], before, gone, session), f"{table} lost {rows[key]}"
        for identity, row in left.items():
            self.check_memory(memories, gone, row, wished, heir(memories, gone, identity))

    def check_receipt(self, before: Rows, after: Rows, gone: set[int]) -> None:
        found = self.run("select id, memory_ids, counts, scope from forget_receipt order by id desc limit 1")
        if not found or (not gone and found[0][3] == "prune"):
            return
        [(receipt, ids, counts, _)] = found
        assert set(ids) == gone
        told = {
            (c["relation"], c["action"]): c["rows"] for c in counts if c["rows"] and c["action"] != "mention"
        }
        expected = {
            what: n for what, n in changes(before, after).items() if what != ("consolidation", "changed")
        }
        assert told == expected
        findings = self.run("select relation, key ->> 'id', finding from memory_forget_check(%s)", receipt)
        assert not [finding for finding in findings if finding[2] == "reference"]

    def depends(self, table: str, row: Row, before: Rows, gone: set[int], session: str) -> bool:
        """Tell whether a row is, or leads to, what was forgotten."""
        if (table == "memory" and row["id"] in gone) or table == "session":
            return True
        if table == "memory_term":
            return row["id"] in gone
        if table == "generation":
            return any(
                d["generation_id"] == row["id"] and self.depends("decision", d, before, gone, session)
                for d in before["decision"].values()
            )
        return any(
            other[key] == row[column] and self.depends(target, other, before, gone, session)
            for name, column, target, key in self.tables.references
            if name == table and target in ("memory", "decision")
            for other in before[target].values()
            if target != table
        )

    def check_memory(
        self, memories: dict[int, Row], gone: set[int], row: Row, wished: bool, following: int | None
    ) -> None:
        """Assert that a memory that stays is as it was, but for what it had to do with those that went."""
        was = dict(memories[row["id"]])
        if was["superseded_by"] in gone:
            was["superseded_by"] = following
            if following is None:
                was["valid_to"] = was["valid_to_given"] if wished else was["valid_to"]
                was["valid_to_given"] = None
        if "memory_ids" in was["metadata"]:
            kept = [i for i in was["metadata"]["memory_ids"] if i not in gone]
            was["metadata"] = was["metadata"] | {"memory_ids": kept}
        assert row | {"confidence": None} == was | {"confidence": None}


@pytest.mark.timeout(900)  # through a router, 230 s were seen at a load of 8
@pytest.mark.long
def test_forgetting_takes_what_it_must_and_nothing_else(
    scripted: None, connect: Connect, db: psycopg.Connection, ana: psycopg.Connection
) -> None:
    db.execute("set jit = off")  # To compile the query of all tables takes longer than to run it.
    remember(ana, TEXTS[0])
    tables = Tables(db)
    others = tables.read(ana.info.user)
    machine = type("Forgetting", (Forgetting,), {"connection": connect("application"), "tables": tables})
    examples = int(os.environ.get("MINDFUL_TEST_EXAMPLES", "0"))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples or 60,
            stateful_step_count=16,
            deadline=None,
            derandomize=not examples,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert one(db, "select count(distinct tenant) from mindful.memory") > 1
    assert tables.read(ana.info.user) == others
