"""Answers of deterministic calls are generated once; others each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from mindful.core.ports import Message, Row, Sampling
from mindful.generate import cache
from mindful.generate.call import Call, tokens_of
from mindful.generate.schema import schema_of
from mindful.models import runtime
from unit.fakes import FakeDatabase, scripted


class Cached(FakeDatabase):
    """Keeps results in memory, and counts what is generated."""

    def __init__(self, enabled: bool = True, default: str = "yes") -> None:
        self.results: dict[str, str] = {}
        super().__init__(
            scripted(s={"default": default})
            | {"_mindful.cached_results": self._found, "_mindful.cached_result_insert": self._insert}
        )
        self.answers["mindful.setting_get('result_cache')"] = [{"wanted": enabled}]

    @property
    def generated(self) -> int:
        """Number of calls that the model answered."""
        return sum(
            1 if "values" in sql else arguments[0].count('"prompt_sha256"')
            for sql, arguments in self.asked
            if "insert into mindful.generation" in sql
        )

    def call(self, text: str = "question", schema: str | None = None, **sampling: Any) -> Call:
        spec, generator = runtime.generator(self, "s")
        tokens = tokens_of(generator, [Message("user", text)])
        form = schema_of(schema, self.check) if schema else None
        drawn = Sampling(16, **{"temperature": 0.0} | sampling)
        return Call(spec, generator, tokens, drawn, form)

    def _found(self, keys: list[str]) -> Sequence[Row]:
        return [{"key": key, "result": self.results[key]} for key in keys if key in self.results]

    def _insert(self, keys: list[str], results: list[str]) -> Sequence[Row]:
        self.results |= dict(zip(keys, results, strict=True))
        return []


def test_the_same_call_is_answered_once() -> None:
    db = Cached()
    assert [cache.answer(db, db.call()) for _ in range(3)] == ["yes"] * 3
    assert db.generated == 1
    cache.answer(db, db.call("another"))
    assert db.generated == 2


@pytest.mark.parametrize(
    ("sampling", "generated"),
    [({}, 1), ({"temperature": 1.0}, 2), ({"temperature": 1.0, "seed": 1}, 1), ({"temperature": 0.1}, 2)],
)
def test_only_what_would_be_the_same_again_is_kept(sampling: dict[str, Any], generated: int) -> None:
    for together in (False, True):
        db = Cached()
        for _ in range(2):
            if together:
                cache.answers(db, [db.call(**sampling)])
            else:
                cache.answer(db, db.call(**sampling))
        assert db.generated == generated


def test_nothing_is_kept_where_the_setting_is_off() -> None:
    db = Cached(enabled=False)
    for _ in range(2):
        cache.answer(db, db.call())
        cache.answers(db, [db.call()])
        cache.kept(db, [("a",)], lambda missing: ["b"])
    assert db.generated == 4
    assert db.results == {}


def test_of_many_calls_those_that_are_not_kept_are_answered() -> None:
    db = Cached()
    cache.answer(db, db.call("b"))
    calls = [db.call("a"), db.call("b"), db.call("c", temperature=1.0), db.call("d")]
    assert cache.answers(db, calls) == ["yes"] * 4
    assert db.generated == 1 + 3
    assert len(db.results) == 3
    cache.answers(db, [db.call("a"), db.call("d")])
    assert db.generated == 4
    assert cache.answers(db, []) == []


def test_an_answer_that_does_not_fit_its_schema_is_not_kept() -> None:
    db, number = Cached(default="many"), '{"type": "integer"}'
    for _ in range(2):
        assert cache.answers(db, [db.call(schema=number), db.call("other")]) == ["many"] * 2
    assert len(db.results) == 1
    assert db.generated == 3


def test_a_kept_answer_to_a_schema_is_a_whole_one() -> None:
    db, text = Cached(default='"yes"'), '{"enum": ["yes"]}'
    for _ in range(2):
        call = db.call(schema=text)
        (answer,) = cache.answers(db, [call])
        assert call.checked(answer) == '"yes"'
    assert db.generated == 1


def test_results_come_in_order_whichever_are_kept() -> None:
    db, asked = Cached(), list[list[int]]()

    def compute(missing: Sequence[int]) -> list[str]:
        asked.append(list(missing))
        return [str(at) for at in missing]

    assert cache.kept(db, [("a",), ("b",)], compute) == ["0", "1"]
    assert cache.kept(db, [("c",), ("b",), ("d",), ("a",)], compute) == ["0", "1", "2", "0"]
    assert asked == [[0, 1], [0, 2]]
    cache.kept(db, [("a",), ("b",)], compute)
    assert cache.kept(db, [], compute) == []
    assert len(asked) == 2
