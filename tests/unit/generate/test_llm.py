from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.core.errors import (
    ContextLengthError,
    InvalidParameterError,
    MindfulError,
    NotReadyError,
    NullValueError,
    UndefinedObjectError,
)
from mindful.core.ports import Completion
from mindful.generate import call, llm, sampling
from mindful.models import runtime
from unit.fakes import Answer, FakeDatabase

LOGPROBS = st.floats(min_value=-40, max_value=0)


def database(kind: str = "generator", **options: Any) -> FakeDatabase:
    model = {"name": "s", "kind": kind, "provider": "scripted", "source": "", "sha256": "cafe"}
    answers: dict[str, Answer] = {
        "_mindful.model_find": [model | {"options": json.dumps(options)}],
        "insert into mindful.generation": [{"id": 1}],
        "transaction_read_only": [{"log": True}],
    }
    return FakeDatabase(answers)


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function beneath sql_function, which takes the database."""
    beneath: Callable[..., Any] = inspect.unwrap(function)
    return beneath


def generate(db: FakeDatabase, prompt: str | None, **changed: Any) -> dict[str, Any] | None:
    arguments: dict[str, Any] = {
        "model": None,
        "max_tokens": 16,
        "temperature": 0.0,
        "seed": None,
        "system_prompt": None,
        "stop": [],
        "truncate": False,
        "json_schema": None,
        "grammar": None,
        "top_p": 0.95,
        "top_k": 40,
        "min_p": 0.05,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repeat_penalty": 1.0,
    }
    detail: dict[str, Any] | None = wrapped(llm.llm_generate_detail)(
        db, prompt, *call.Arguments(**arguments | changed)
    )
    return detail


def test_confidence_is_the_geometric_mean_of_probabilities() -> None:
    assert call.confidence(Completion(logprobs=[math.log(0.9), math.log(0.4)])) == pytest.approx(0.6)


@given(st.lists(LOGPROBS, min_size=1))
def test_confidence_lies_between_the_least_probability_and_one(logprobs: list[float]) -> None:
    confidence = call.confidence(Completion(logprobs=logprobs))
    assert math.exp(min(logprobs)) <= confidence * (1 + 1e-9)
    assert 0 < confidence <= 1


def test_an_answer_without_tokens_has_no_confidence() -> None:
    assert call.confidence(Completion()) == 0
    assert call.signals(Completion()) == {"tokens": 0}


def test_signals_sum_up_the_tokens() -> None:
    completion = Completion(
        logprobs=[-0.25, -1.0, -0.5], entropies=[0.5, 2.0, 0.5], margins=[0.75, 0.125, 0.5]
    )
    assert call.signals(completion) == {
        "logprob_sum": -1.75,
        "logprob_mean": round(-1.75 / 3, 6),
        "logprob_min": -1.0,
        "logprob_first": -0.25,
        "entropy_mean": 1.0,
        "entropy_high": 2.0,
        "entropy_max": 2.0,
        "margin_min": 0.125,
        "tokens": 3,
    }


def test_the_highest_quarter_of_entropies_is_averaged() -> None:
    entropies = [0.1, 3.0, 0.2, 1.0, *[0.1] * 7]
    completion = Completion(logprobs=[-0.5] * 11, entropies=entropies, margins=[0.5] * 11)
    assert call.signals(completion)["entropy_high"] == 2.0


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"max_tokens": None}, NullValueError),
        ({"temperature": None}, NullValueError),
        ({"max_tokens": 0}, InvalidParameterError),
        ({"max_tokens": -1}, InvalidParameterError),
        ({"temperature": -0.1}, InvalidParameterError),
        ({"temperature": 10.5}, InvalidParameterError),
        ({"temperature": math.inf}, InvalidParameterError),
        ({"temperature": math.nan}, InvalidParameterError),
        ({"seed": -1}, InvalidParameterError),
    ],
)
def test_sampling_that_makes_no_sense_is_refused(changed: dict[str, Any], error: type[MindfulError]) -> None:
    with pytest.raises(error) as caught:
        sampling.sampling_of(**{"max_tokens": 16, "temperature": 0.0, "seed": None} | changed)
    assert caught.value.hint


def test_null_and_empty_stop_strings_are_left_out() -> None:
    assert sampling.sampling_of(1, 0.0, 0, None).stop == ()
    assert sampling.sampling_of(1, 0.0, 0, ["", "END"]).stop == ("END",)


def test_a_call_is_logged_with_what_it_cost() -> None:
    db = database(default="It is so.", logprob=-0.5)
    detail = generate(db, "Is it so?", max_tokens=3)
    assert detail is not None
    assert (
        detail | {"text": "It is so.", "model": "s", "completion_tokens": 3, "finish_reason": "length"}
        == detail
    )
    assert detail["confidence"] == pytest.approx(math.exp(-0.5))
    statement, values = db.asked[-1]
    columns = statement.split("(", 1)[1].split(")", 1)[0].split(", ")
    logged = dict(zip(columns, values, strict=True))
    cost = {key: value for key, value in detail.items() if key not in ("text", "model")}
    assert logged | cost == logged
    assert logged["token_logprobs"] == [-0.5] * 3
    assert (logged["model"], logged["model_sha256"], logged["max_tokens"]) == ("s", "cafe", 3)
    assert not any("Is it so?" in str(value) or "It is so." in str(value) for value in values)


def test_a_read_only_transaction_gets_an_answer_and_keeps_no_record() -> None:
    db = database(default="It is so.")
    db.answers["transaction_read_only"] = [{"log": False}]
    detail = generate(db, "Is it so?")
    assert detail is not None
    assert detail["text"] == "It is so."
    assert db.arguments_of("insert into mindful.generation") == []


def test_a_null_prompt_asks_nothing() -> None:
    db = FakeDatabase({})
    assert generate(db, None) is None
    assert db.asked == []


@pytest.mark.parametrize("prompt", ["", " \t\n"])
def test_an_empty_prompt_is_refused(prompt: str) -> None:
    with pytest.raises(InvalidParameterError):
        generate(database(), prompt)


def test_the_system_prompt_is_the_calls_the_models_or_the_general_one() -> None:
    def seen(db: FakeDatabase, system_prompt: str | None) -> str:
        detail = generate(db, "Hello", system_prompt=system_prompt)
        assert detail
        return str(detail["text"])

    replies = [["system: mine", "mine"], ["system: model", "model"], ["system:", "general"]]
    script: dict[str, Any] = {"replies": replies, "default": "none"}
    assert seen(database(**script), "mine") == "mine"
    assert seen(database(**script, system_prompt="model"), None) == "model"
    assert seen(database(**script), None) == "general"
    assert seen(database(**script, system_prompt="model"), "") == "none"


def test_a_prompt_past_the_context_is_an_error_and_costs_nothing() -> None:
    db = database(context_length=32)
    with pytest.raises(ContextLengthError) as caught:
        generate(db, "word " * 40)
    assert caught.value.sqlstate == "54000"
    assert "truncate" in (caught.value.hint or "")
    assert db.arguments_of("generation") == []


@given(st.integers(1, 100), st.integers(1, 60))
def test_truncate_leaves_room_for_the_answer(words: int, max_tokens: int) -> None:
    db = database(context_length=32, default="word " * 60)
    detail = generate(db, " ".join(["word"] * words), truncate=True, max_tokens=max_tokens)
    assert detail
    assert detail["prompt_tokens"] + min(max_tokens, 16) <= 32


def test_truncate_cuts_a_prompt_whose_tokens_merge_with_the_templates() -> None:
    detail = generate(database(context_length=32), "word " * 21, truncate=True, max_tokens=1)
    assert detail
    assert detail["prompt_tokens"] <= 31


def test_a_missing_model_is_named_and_a_missing_default_is_not_ready() -> None:
    db = FakeDatabase({"_mindful.model_find": [], "withdrawn_at": []})
    with pytest.raises(UndefinedObjectError, match="gpt"):
        generate(db, "Hello", model="gpt")
    with pytest.raises(NotReadyError) as caught:
        generate(db, "Hello")
    assert "model_register" in (caught.value.hint or "")


def test_embeddings_stand_in_the_order_of_the_texts_and_null_stays_null() -> None:
    embed_many = wrapped(llm.llm_embed_many)
    embed = wrapped(llm.llm_embed)
    db = database("embedder", dims=8)
    assert embed_many(db, [None, "a dog", "a cat", None], None) == [
        None,
        embed(db, "a dog", None),
        embed(db, "a cat", None),
        None,
    ]
    assert embed_many(db, [None], None) == [None]
    assert embed_many(db, [], None) == []
    assert embed_many(db, None, None) is None
    assert embed(db, None, None) is None


def test_an_empty_text_has_no_embedding() -> None:
    with pytest.raises(InvalidParameterError):
        llm.embed_texts(database("embedder"), ["a dog", " "], None)


def test_tokens_are_counted_up_to_a_length() -> None:
    count = wrapped(llm.llm_token_count)
    assert count(database(), "one two three", None) == 3
    assert count(database(), None, None) is None
    with pytest.raises(ContextLengthError):
        count(database(), "a" * (call.LONGEST_TEXT + 1), None)


@pytest.mark.parametrize("keep", [True, False])
def test_a_model_is_kept_past_the_transaction_or_given_back(keep: bool) -> None:
    db = database(default="So.")
    [model] = db.answers["_mindful.model_find"]  # type: ignore[misc]
    db.answers["_mindful.model_find"] = [dict(model) | {"keep": keep}]
    generate(db, "Is it so?")
    assert len(runtime.loaded()) == 1
    for action in db.afterwards:
        action()
    assert len(runtime.loaded()) == keep
