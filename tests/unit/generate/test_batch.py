from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.core.errors import InvalidParameterError
from mindful.generate import batch
from mindful.models.providers.packing import common_prefix
from unit.fakes import FakeDatabase
from unit.generate.test_llm import database, wrapped


def many(
    db: FakeDatabase, prompts: list[str | None] | None, seed: int | None = None
) -> list[str | None] | None:
    db.answers["insert into mindful.generation"] = lambda rows: [
        {"id": at} for at, _ in enumerate(json.loads(rows))
    ]
    arguments: tuple[Any, ...] = (
        None,
        16,
        0.0,
        seed,
        None,
        [],
        False,
        None,
        None,
        0.95,
        40,
        0.05,
        0.0,
        0.0,
        1.0,
    )
    found: list[str | None] | None = wrapped(batch.llm_generate_many)(db, prompts, *arguments)
    return found


def logged(db: FakeDatabase) -> list[dict[str, Any]]:
    ((rows,),) = db.arguments_of("insert into mindful.generation")
    found: list[dict[str, Any]] = json.loads(rows)
    return found


def test_answers_stand_in_order_and_are_logged_in_one_statement() -> None:
    db = database(replies=[["one", "First."], ["two", "Second."]], logprob=-0.5)
    assert many(db, ["two", None, "one"], seed=5) == ["Second.", None, "First."]
    rows = logged(db)
    assert [(row["seed"], row["completion_tokens"], row["token_logprobs"]) for row in rows] == [
        (5, 1, [-0.5]),
        (7, 1, [-0.5]),
    ]
    assert rows[0]["signals"]["tokens"] == 1
    assert "Second." not in json.dumps(rows)


def test_the_largest_seed_is_followed_by_the_smallest() -> None:
    db = database()
    many(db, ["a", "b"], seed=(1 << 31) - 1)
    assert [row["seed"] for row in logged(db)] == [(1 << 31) - 1, 0]


def test_an_error_says_which_prompt_it_is_about() -> None:
    with pytest.raises(InvalidParameterError, match=r"^prompt 3: "):
        many(database(), ["a", None, " "])


def test_a_read_only_transaction_keeps_no_record() -> None:
    db = database(default="It is so.")
    db.answers["transaction_read_only"] = [{"log": False}]
    assert many(db, ["Is it so?"]) == ["It is so."]
    assert db.arguments_of("insert into mindful.generation") == []


def test_nothing_asks_nothing() -> None:
    db = FakeDatabase({})
    assert many(db, None) is None
    assert many(db, []) == []
    assert many(db, [None]) == [None]
    assert db.asked == []


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_a_common_prefix_is_the_longest(left: list[int], right: list[int]) -> None:
    shared = common_prefix(left, right)
    assert left[:shared] == right[:shared]
    assert left[: shared + 1] != right[: shared + 1] or shared == len(left) == len(right)
