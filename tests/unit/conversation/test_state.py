from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.conversation.state import LEAST, MOST, ConversationState, ListState, fingerprint
from mindful.core.ports import ModelSpec, Row
from mindful_scripted import ScriptedGenerator
from unit.fakes import FakeDatabase

SPEC = ModelSpec("s", "generator", "scripted", "", "cafe", {})


class StatefulGenerator(ScriptedGenerator):
    """Its state of some tokens is their text."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        super().__init__({})
        self.state_format = "text"
        self.cache = list(tokens)
        self.loaded: list[int] = []
        self.refuses = False

    def held(self, tokens: Sequence[int]) -> int:
        pairs = zip(self.cache, tokens, strict=False)
        return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(self.cache), len(tokens)))

    def save(self, first: int, last: int) -> bytes:
        return repr(self.cache[first:last]).encode()

    def load(self, first: int, tokens: Sequence[int], state: bytes) -> bool:
        assert state == repr(list(tokens)).encode()
        assert len(self.cache) >= first
        if self.refuses:
            return False
        self.cache[first:] = tokens
        self.loaded.append(first)
        return True


class Store:
    """The table, without its rules."""

    def __init__(self, tenant: str = "ana", enabled: bool = True, tenant_bytes: int = 1 << 30) -> None:
        self.table: dict[int, dict[str, Any]] = {}
        self.writes = 0
        limits = {"tenant": tenant, "enabled": enabled, "tenant_bytes": tenant_bytes}
        self.db = FakeDatabase(
            {
                "_mindful.kv_state_limits": [limits],
                "_mindful.kv_state_parts": self._parts,
                "_mindful.kv_state_read": self._read,
                "_mindful.kv_state_write": self._write,
            }
        )
        self._tenant = tenant

    def state(self, generator: ScriptedGenerator, session: str = "s1") -> ConversationState:
        return ConversationState(self.db, SPEC, generator, session)

    @property
    def tokens(self) -> list[list[int]]:
        return [self.table[first]["tokens"] for first in sorted(self.table)]

    def _parts(self, _session: str, _model: str, wanted: str) -> Sequence[Row]:
        return [row for _, row in sorted(self.table.items()) if row["fingerprint"] == wanted]

    def _read(self, _session: str, _model: str, first: int) -> Sequence[Row]:
        return [self.table[first]] if first in self.table else []

    def _write(
        self,
        _s: str | None,
        _l: str | None,
        _m: str,
        first: int,
        mark: str,
        tokens: list[int],
        state: bytes,
        mac: bytes,
    ) -> Sequence[Row]:
        self.writes += 1
        self.table = {at: row for at, row in self.table.items() if at < first and row["fingerprint"] == mark}
        self.table[first] = {
            "tenant": self._tenant,
            "first": first,
            "fingerprint": mark,
            "tokens": tokens,
            "state": state,
            "mac": mac,
        }
        return [{"written": True}]


def store_of(tokens: Sequence[int], **limits: Any) -> Store:
    """A store that keeps the state of some tokens."""
    store = Store(**limits)
    store.state(StatefulGenerator(tokens)).keep(tokens)
    return store


TOKENS = list(range(1, 3 * MOST + 1))


def test_what_was_kept_is_restored_in_parts() -> None:
    store = store_of(TOKENS)
    assert store.tokens == [TOKENS[at : at + MOST] for at in range(0, 3 * MOST, MOST)]
    generator = StatefulGenerator()
    store.state(generator).restore(TOKENS)
    assert generator.cache == TOKENS


def test_only_what_is_new_is_written_and_only_what_is_missing_is_read() -> None:
    store = store_of(TOKENS[:200])
    store.state(StatefulGenerator(TOKENS[:300])).keep(TOKENS[:300])
    assert (store.tokens, store.writes) == ([TOKENS[:200], TOKENS[200:300]], 2)
    generator = StatefulGenerator(TOKENS[:220])
    store.state(generator).restore(TOKENS[:310])
    assert (generator.loaded, generator.cache) == ([200], TOKENS[:300])


def test_little_is_neither_written_nor_read() -> None:
    assert store_of(TOKENS[: LEAST - 1]).writes == 0
    store = store_of(TOKENS[:200])
    store.state(StatefulGenerator(TOKENS[: 199 + LEAST])).keep(TOKENS)
    assert store.writes == 1
    for held, prompt in ((201 - LEAST, TOKENS), (0, TOKENS[: LEAST - 1])):
        generator = StatefulGenerator(TOKENS[:held])
        store.state(generator).restore(prompt)
        assert generator.loaded == []


def test_a_changed_conversation_keeps_the_parts_before_the_change() -> None:
    store = store_of(TOKENS[:200])
    longer = StatefulGenerator(TOKENS[:300])
    store.state(longer).keep(longer.cache)
    changed = [*TOKENS[:250], *[0] * 100]
    generator = StatefulGenerator()
    store.state(generator).restore(changed)
    assert generator.cache == TOKENS[:200]
    generator.cache = list(changed)
    store.state(generator).keep(changed)
    assert store.tokens == [TOKENS[:200], changed[200:]]


@pytest.mark.parametrize(
    "changed",
    [
        {"state": b"another"},
        {"mac": b""},
        {"tenant": "bob"},
        {"tokens": [0] * 200},
        {"first": 1},
    ],
)
def test_a_part_that_is_not_as_it_was_sealed_is_not_loaded_but_replaced(changed: dict[str, Any]) -> None:
    store = store_of(TOKENS[:200])
    store.table[0] |= changed
    generator = StatefulGenerator()
    state = store.state(generator)
    state.restore(TOKENS[:200])
    assert generator.loaded == []
    generator.cache = TOKENS[:200]
    state.keep(TOKENS[:200])
    again = StatefulGenerator()
    store.state(again).restore(TOKENS[:200])
    assert again.cache == TOKENS[:200]


def test_a_part_that_the_model_refuses_is_replaced() -> None:
    store = store_of(TOKENS[:200])
    generator = StatefulGenerator()
    generator.refuses = True
    state = store.state(generator)
    state.restore(TOKENS[:200])
    generator.cache = TOKENS[:200]
    state.keep(TOKENS[:200])
    assert store.writes == 2


def test_a_state_is_of_one_session() -> None:
    store, generator = store_of(TOKENS[:200]), StatefulGenerator()
    store.state(generator, "s2").restore(TOKENS[:200])
    assert generator.loaded == []


@pytest.mark.parametrize("limits", [{"enabled": False}, {"tenant_bytes": 100}])
def test_the_limits_are_kept(limits: dict[str, Any]) -> None:
    assert store_of(TOKENS, **limits).writes == 0


def test_a_generator_without_states_asks_the_table_nothing() -> None:
    store = Store()
    state = store.state(ScriptedGenerator({}))
    state.restore(TOKENS)
    state.keep(TOKENS)
    assert store.db.asked == []


def test_the_fingerprint_changes_with_all_that_a_state_depends_on() -> None:
    others = [
        (ModelSpec("t", "generator", "scripted", "", "cafe", {}), "text"),
        (ModelSpec("s", "generator", "scripted", "", "beef", {}), "text"),
        (SPEC, "text 2"),
    ]
    assert fingerprint(SPEC, "text") not in {fingerprint(*other) for other in others}


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 200)), max_size=6))
def test_whatever_happens_what_is_restored_is_what_was_said(changes: list[tuple[int, int]]) -> None:
    """Conversations that go on, and begin anew at any point, as a moving window does."""
    store, number = Store(), 0
    said: list[int] = []
    for keep, add in changes:
        said = said[:keep] + [number := number + 1 for _ in range(add)]
        store.state(StatefulGenerator(said)).keep(said)
        generator = StatefulGenerator()
        store.state(generator).restore(said)
        assert generator.cache == said[: len(generator.cache)]
        assert len(generator.cache) > len(said) - LEAST


class Threads:
    """The kept beginnings of conversations that clients resend, each a table of its own."""

    def __init__(self, may_write: bool = True) -> None:
        self.stores: dict[str, Store] = {}
        self.db = FakeDatabase(
            {
                "as may_write": [{"may_write": may_write}],
                "_mindful.kv_state_thread": self._thread,
                "_mindful.kv_state_limits": [{"tenant": "ana", "enabled": True, "tenant_bytes": 1 << 30}],
                "_mindful.kv_state_parts": lambda thread, *_: self._store(thread)._parts("", "", self._mark),
                "_mindful.kv_state_read": lambda thread, _, first: self._store(thread)._read("", "", first),
                "_mindful.kv_state_write": lambda _, thread, *rest: self._store(thread)._write("", "", *rest),
            }
        )
        self._mark = fingerprint(SPEC, "text")

    @property
    def kept(self) -> list[list[int]]:
        """The tokens of all that is kept."""
        return sorted(
            [token for part in store.tokens for token in part]
            for store in self.stores.values()
            if store.table
        )

    def answer(self, tokens: Sequence[int], reply: Sequence[int] = ()) -> StatefulGenerator:
        """Answer a prompt in a connection of its own, and keep its state."""
        generator = StatefulGenerator()
        state = ListState(self.db, SPEC, generator, tokens)
        state.restore(tokens)
        restored = list(generator.cache)
        generator.cache = [*tokens, *reply]
        state.keep(generator.cache)
        generator.cache = restored
        return generator

    def _store(self, thread: str) -> Store:
        return self.stores.setdefault(thread, Store())

    def _thread(self, tokens: list[int], _model: str, _mark: str) -> Sequence[Row]:
        held = {
            name: [token for part in store.tokens for token in part] for name, store in self.stores.items()
        }
        alike = {
            name: next((at for at, (a, b) in enumerate(zip(kept, tokens, strict=False)) if a != b), len(kept))
            for name, kept in held.items()
            if kept and kept[0] == tokens[0]
        }
        name = max(alike, key=lambda one: alike[one], default=None)
        return [{"thread_id": name, "is_whole": alike[name] == len(held[name])}] if name else []


def test_a_resent_conversation_goes_on_where_it_was() -> None:
    threads = Threads()
    assert threads.answer(TOKENS[:100], TOKENS[100:120]).cache == []
    assert threads.answer(TOKENS[:140], TOKENS[140:160]).cache == TOKENS[:120]
    assert threads.kept == [TOKENS[:160]]


def test_another_turn_is_kept_beside_the_first() -> None:
    threads, other = Threads(), [*TOKENS[:100], *range(5000, 5050)]
    threads.answer(TOKENS[:150])
    threads.answer(other)
    assert threads.kept == [TOKENS[:150], other]
    assert threads.answer([*TOKENS[:150], 9]).cache == TOKENS[:150]
    assert threads.answer([*other, 9]).cache == other


def test_the_beginning_of_another_conversation_is_not_evaluated_again() -> None:
    threads = Threads()
    threads.answer(TOKENS[:100])
    threads.answer(TOKENS[:140])
    assert threads.answer([*TOKENS[:100], *range(5000, 5050)]).cache == TOKENS[:100]


@pytest.mark.parametrize(("length", "kept"), [(15, 0), (16, 1)])
def test_a_short_turn_of_a_client_is_kept(length: int, kept: int) -> None:
    threads = Threads()
    threads.answer(TOKENS[:length])
    assert len(threads.kept) == kept
    assert threads.db.arguments_of("_mindful.kv_state_thread") == [
        (TOKENS[:length], "s", fingerprint(SPEC, "text"))
    ] * (2 * kept)


def test_nothing_is_kept_where_nothing_may_be_written() -> None:
    threads = Threads(may_write=False)
    threads.answer(TOKENS[:100])
    assert threads.kept == []
