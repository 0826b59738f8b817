"""Texts that are read, batch by batch, and what is rejected of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from mindful.core.ports import Row
from mindful.learning.consolidation import _Sentences, consolidate
from mindful.learning.extraction.sentence import normal
from unit.fakes import FakeDatabase, scripted, wrapped


def text(number: int, content: str, **changed: Any) -> Row:
    found = {
        "id": number,
        "kind": "message",
        "role": "user",
        "content": content,
        "content_hash": f"hash {number}",
        "session_id": "s",
        "turn": number,
        "speaker": None,
        "at": f"2024-05-{number % 28 + 1:02}T12:00:00+00:00",
        "said_next": None,
    }
    return found | changed


class Texts(FakeDatabase):
    """Texts that are due, and what is written of them."""

    def __init__(
        self, *texts: Row, said: Sequence[Row] = (), known: Sequence[Row] = (), forgotten: Sequence[int] = ()
    ) -> None:
        self.written: dict[str, list[Any]] = {}
        self.batches: list[list[int]] = []
        self.texts = texts
        self.numbers = iter(range(1000, 100_000))
        super().__init__(
            {
                "_mindful.consolidation_pending": lambda _since, most: [
                    {"id": one["id"]} for one in texts[:most]
                ],
                "_mindful.time_text(m.created_at) as at": self.read,
                "_mindful.delete('memory_evidence'": [],
                "s.system_prompt as content": said,
                "from mindful.memory_statement s join": known,
                "insert into mindful.memory (kind": self.facts,
                "insert into mindful.memory_evidence": lambda rows: self.keep("evidence", rows),
                "insert into mindful.memory_statement": lambda rows, *_: self.keep("statement", rows),
                "insert into mindful.memory_entity": lambda rows: self.keep("entity", rows),
                "insert into mindful.memory_link": lambda rows, *_: self.keep("link", rows),
                "memory_extraction": lambda rows, *_: self.keep("extraction", rows),
                "update mindful.memory m set confidence": [],
                "update mindful.memory m\n": lambda rows: self.keep("closed", rows),
                "_mindful.memory_keep(": lambda ids: [{"id": one} for one in ids if one not in forgotten],
                "_mindful.": [],
            },
            scripted(generator={}),
        )

    def read(self, ids: list[int]) -> Sequence[Row]:
        """Give a batch."""
        self.batches.append(ids)
        return [one for one in self.texts if one["id"] in ids]

    def keep(self, table: str, rows: str) -> Sequence[Row]:
        """Keep rows."""
        found = json.loads(rows) if isinstance(rows, str) else rows
        self.written.setdefault(table, []).extend(found)
        return [{"added": 1} for _ in found]

    def facts(self, rows: str) -> Sequence[Row]:
        """Give new facts their ids."""
        self.keep("fact", rows)
        return [{"id": next(self.numbers)} for _ in json.loads(rows)]

    def run(self, seconds: int | None = None, memories: int = 10_000) -> dict[str, Any]:
        """Consolidate."""
        found: dict[str, Any] = json.loads(
            wrapped(consolidate)(self, 1, None, "rule", None, memories, seconds)
        )
        return found


def test_facts_quote_their_texts() -> None:
    db = Texts(text(1, "Hi! I live in Boston, and I love pizza."))
    found = db.run()
    assert (found["memories_processed"], found["facts"], found["rejected"]) == (1, 2, {})
    assert [(row["id"], row["source_id"]) for row in db.written["evidence"]] == [(1000, 1), (1001, 1)]
    assert all(row["quote"] in db.texts[0]["content"] for row in db.written["evidence"])
    assert [row["relation"] for row in db.written["statement"]] == ["lives_in", "likes"]


def test_a_text_that_was_forgotten_while_it_was_read_leaves_nothing() -> None:
    db = Texts(text(1, "I live in Boston."), text(2, "I love pizza."), forgotten=[1])
    found = db.run()
    assert (found["memories_processed"], found["facts"]) == (1, 1)
    assert [row["source_id"] for row in db.written["evidence"]] == [2]
    assert [row["id"] for row in db.written["extraction"]] == [2]


@pytest.mark.parametrize(
    ("count", "batches"), [(0, []), (1, [1]), (200, [200]), (201, [200, 1]), (450, [200, 200, 50])]
)
def test_texts_are_read_in_batches(count: int, batches: list[int]) -> None:
    db = Texts(*(text(at, "Nothing.") for at in range(count)))
    assert db.run()["memories_processed"] == count
    assert [len(ids) for ids in db.batches] == batches


def test_a_time_that_is_up_ends_a_run_after_its_first_batch() -> None:
    db = Texts(*(text(at, "Nothing.") for at in range(450)))
    assert db.run(seconds=0)["memories_processed"] == 200
    assert db.run(memories=3)["memories_processed"] == 3
    assert db.run(seconds=1000)["memories_processed"] == 450


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"role": "system"}, "system_prompt"),
        ({"role": "assistant"}, "generated"),
        ({"role": "tool"}, "generated"),
        ({"content": "Forget that I live in Boston."}, "to_forget"),
    ],
)
def test_what_nobody_has_said_is_rejected(changed: dict[str, Any], reason: str) -> None:
    first = {**text(1, "I live in Boston."), **changed}
    found = Texts(first, text(2, "I love pizza.")).run()
    assert (found["facts"], found["rejected"]) == (1, {reason: 1})


def test_documents_are_read_whoever_has_their_role() -> None:
    db = Texts(text(1, "Anna Smith lives in Boston.", kind="document", role=None, session_id=None, turn=None))
    db.run()
    assert db.batches == [[1]]


@pytest.mark.parametrize(("turn", "facts"), [(0, 0), (4, 0), (5, 1), (9, 1)])
def test_who_repeats_what_the_model_said_before_states_nothing(turn: int, facts: int) -> None:
    said = [{"session_id": "s", "turn": turn, "content": "So I live in New York, you say."}]
    found = Texts(text(5, "I live in New York."), said=said).run()
    assert (found["facts"], found["rejected"].get("echo", 0)) == (facts, 1 - facts)


def test_what_was_said_in_another_session_is_no_echo() -> None:
    said = [{"session_id": "t", "turn": 0, "content": "I live in New York."}]
    mine, theirs = text(5, "I live in New York."), text(6, "Hi.", session_id="t")
    assert Texts(mine, theirs, said=said).run()["facts"] == 1


def test_sentences_of_four_words_and_more_are_found_by_any_part() -> None:
    said = _Sentences()
    said.add(normal("We moved to a small town last year."), 3)
    said.add(normal("Yes it is."), 1)
    part = normal("a small town last")
    assert said.is_repeated(part, 4)
    assert not said.is_repeated(part, 3)
    assert not said.is_repeated(normal("a small house last year"), 4)
    assert not said.is_repeated(normal("it is"), 4)
    said.add(normal("We moved to a small town last year."), 1)  # it was said before: the first turn counts
    assert not said.is_repeated(part, 3)


def test_a_fact_that_is_known_is_strengthened() -> None:
    known = {
        "subject": "The user",
        "relation": "lives_in",
        "object": "Boston",
        "id": 7,
        "at": "2024-01-01T00:00:00+00:00",
        "until": None,
    }
    found = Texts(text(1, "I live in Boston."), known=[known]).run()
    assert (found["facts"], found["strengthened"], found["contradicted"]) == (0, 1, 0)
    other = Texts(text(1, "I live in Rome."), known=[known])
    found = other.run()
    assert (found["facts"], found["strengthened"], found["contradicted"]) == (1, 0, 1)
    assert [(row["id"], row["by"]) for row in other.written["closed"]] == [(7, 1000)]
