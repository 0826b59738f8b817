"""Answers to lists of messages, whole and piece by piece, by a model that follows a script."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mindful.conversation import completion
from mindful.conversation.completion import Arguments, llm_complete, llm_complete_stream
from mindful.core.errors import ContextLengthError, DataError, InvalidParameterError
from mindful.core.ports import Row, Sampling
from mindful_scripted import ScriptedGenerator
from unit.fakes import FakeDatabase, scripted, wrapped

PARIS = "The capital of France is Paris."
MODEL = {"replies": [["capital of France", PARIS]], "default": "I do not know."}
ASK = [{"role": "user", "content": "What is the capital of France?"}]
DEFAULTS: dict[str, Any] = dict.fromkeys(Arguments._fields) | {
    "max_tokens": 64,
    "temperature": 0.0,
    "top_p": 0.95,
    "top_k": 40,
    "min_p": 0.05,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repeat_penalty": 1.0,
    "n": 1,
}
CLOCK = json.dumps([{"type": "function", "function": {"name": "clock"}}])
CALL = '{"name": "clock", "arguments": {"city": "Paris"}}'


def whole(messages: object = ASK, model: Row = MODEL, **given: Any) -> list[Row]:
    """Answer a list of messages."""
    return list(called(llm_complete, messages, model, given))


def pieces(messages: object = ASK, model: Row = MODEL, **given: Any) -> list[Row]:
    """Answer a list of messages piece by piece."""
    return list(called(llm_complete_stream, messages, model, given))


def called(function: Any, messages: object, model: Row, given: Row) -> Any:
    arguments = Arguments(**DEFAULTS | dict(given))
    return wrapped(function)(FakeDatabase(scripted(s=model)), json.dumps(messages), *arguments)


def test_an_answer_tells_its_model_its_cost_and_why_it_ended() -> None:
    (row,) = whole()
    assert (row["text"], row["finish_reason"], row["choice"], row["model"]) == (PARIS, "stop", 0, "s")
    assert (row["completion_tokens"], row["tool_calls"], row["logprobs"]) == (6, None, None)
    (row,) = whole(max_tokens=2)
    assert (row["text"], row["finish_reason"], row["completion_tokens"]) == ("The capital", "length", 2)


@pytest.mark.parametrize("function", [llm_complete, llm_complete_stream])
def test_null_messages_have_no_answer(function: Any) -> None:
    assert list(wrapped(function)(FakeDatabase(), None, *Arguments(**DEFAULTS))) == []


def test_pieces_are_the_answer_and_the_last_one_tells_its_cost() -> None:
    made = pieces()
    assert "".join(piece["text"] for piece in made) == PARIS
    assert all(piece["choice"] == 0 and piece["tool_call"] is None for piece in made)
    assert [piece["finish_reason"] for piece in made] == [None] * (len(made) - 1) + ["stop"]
    assert [piece["usage"] for piece in made[:-1]] == [None] * (len(made) - 1)
    (row,) = whole()
    usage = json.loads(made[-1]["usage"])
    assert usage.keys() >= {"model", "prompt_tokens", "completion_tokens", "confidence"}
    assert all(usage[key] == row[key] for key in ("model", "prompt_tokens", "completion_tokens"))
    assert usage["signals"] == json.loads(row["signals"])


def test_each_choice_has_its_own_seed() -> None:
    drawn = MODEL | {"samples": ["one", "two", "three"]}
    assert [(row["choice"], row["text"]) for row in whole(model=drawn, seed=1, n=3)] == [
        (0, "one"),
        (1, "two"),
        (2, "three"),
    ]
    made = pieces(model=drawn, seed=2, n=2)
    assert [(piece["choice"], piece["text"]) for piece in made if piece["text"]] == [(0, "two"), (1, "three")]
    assert [piece["choice"] for piece in made if piece["finish_reason"]] == [0, 1]


@pytest.mark.parametrize("n", [0, 33])
def test_choices_are_between_1_and_32(n: int) -> None:
    with pytest.raises(InvalidParameterError, match=f"n is {n}"):
        whole(n=n)
    assert len(whole(n=32)) == 32


def test_an_answer_ends_where_the_context_does() -> None:
    small = {"context_length": 40, "default": "word " * 100}
    for most in (-1, 64):
        (row,) = whole(model=small, max_tokens=most)
        assert row["prompt_tokens"] + row["completion_tokens"] == 40
        assert row["finish_reason"] == "length"
    with pytest.raises(ContextLengthError):
        whole([{"role": "user", "content": "word " * 40}], small)


def test_a_plain_text_is_continued() -> None:
    (row,) = whole("Once upon", {"replies": [["Once upon", " a time"]]})
    assert (row["text"], row["prompt_tokens"]) == (" a time", 2)


def test_tokens_are_told_with_as_many_alternatives_as_wanted() -> None:
    (row,) = whole(top_logprobs=1)
    told = json.loads(row["logprobs"])
    assert "".join(one["token"] for one in told) == PARIS
    for one in told:
        assert one["bytes"] == list(one["token"].encode())
        assert one["logprob"] == -0.1
        assert one["top_logprobs"] == [{"token": one["token"], "bytes": one["bytes"], "logprob": -0.1}]
    (row,) = whole(top_logprobs=0)
    assert [one["top_logprobs"] for one in json.loads(row["logprobs"])] == [[]] * 6


@pytest.mark.parametrize("stop", [None, ["capital of Spain"], ["is Paris. It"]])
def test_each_token_comes_once_whether_or_not_its_text_is_held_back(stop: list[str] | None) -> None:
    made = pieces(top_logprobs=0, stop=stop)
    assert "".join(piece["text"] for piece in made) == PARIS
    tokens = [piece["token"] for piece in made if piece["token"] is not None]
    assert "".join(tokens) == PARIS
    assert len(tokens) == 6
    (row,) = whole(top_logprobs=0, stop=stop)
    assert [one["token"] for one in json.loads(row["logprobs"])] == tokens


def test_a_called_function_is_told_apart_from_text() -> None:
    model = {"default": CALL}
    (row,) = whole(model=model, tools=CLOCK, tool_choice="required")
    (call,) = json.loads(row["tool_calls"])
    assert (row["text"], row["finish_reason"]) == ("", "tool_calls")
    assert (call["name"], json.loads(call["arguments"])) == ("clock", {"city": "Paris"})
    made = pieces(model=model, tools=CLOCK, tool_choice="required")
    parts = [json.loads(piece["tool_call"]) for piece in made if piece["tool_call"]]
    assert parts[0]["name"] == "clock"
    assert "".join(part["arguments"] for part in parts) == call["arguments"]
    assert made[-1]["finish_reason"] == "tool_calls"
    assert "".join(piece["text"] for piece in made) == ""


def test_a_call_that_is_cut_ended_by_its_length() -> None:
    (row,) = whole(model={"default": CALL}, tools=CLOCK, tool_choice="required", max_tokens=4)
    assert row["finish_reason"] == "length"
    assert json.loads(row["tool_calls"])[0]["name"] == "clock"


def test_a_text_instead_of_a_call_is_text() -> None:
    (row,) = whole(tools=CLOCK)
    assert (row["text"], row["tool_calls"], row["finish_reason"]) == (PARIS, None, "stop")
    made = pieces(tools=CLOCK)
    assert "".join(piece["text"] for piece in made) == PARIS
    assert made[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize("also", [{"json_schema": "{}"}, {"grammar": 'root ::= "a"'}])
def test_an_answer_has_one_form(also: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match="tools and json_schema or grammar"):
        whole(tools=CLOCK, **also)
    assert len(whole(tools=CLOCK, tool_choice="none", **also, model={"default": "1"})) == 1


def test_a_whole_answer_fits_its_schema() -> None:
    number = json.dumps({"type": "integer"})
    (row,) = whole(model={"default": "42"}, json_schema=number)
    assert row["text"] == "42"
    with pytest.raises(DataError):
        whole(model={"default": "many"}, json_schema=number)
    (row,) = whole(model={"default": "[1, 2]"}, json_schema='{"type": "array"}', max_tokens=1)
    assert (row["text"], row["finish_reason"]) == ("[1,", "length")


class States:
    """Notes which prompts' states are looked for and kept."""

    def __init__(self) -> None:
        self.restored: list[list[int]] = []
        self.kept: list[list[int]] = []

    def __call__(self, *_: object) -> States:
        return self

    def restore(self, tokens: list[int]) -> None:
        self.restored.append(tokens)

    def keep(self, tokens: list[int]) -> None:
        self.kept.append(tokens)


@pytest.mark.parametrize(("seed", "restored"), [(None, 1), (7, 0)])
def test_an_answer_with_a_seed_depends_on_no_kept_state(
    monkeypatch: pytest.MonkeyPatch, seed: int | None, restored: int
) -> None:
    states = States()
    monkeypatch.setattr(completion, "ListState", states)
    monkeypatch.setattr(ScriptedGenerator, "held", lambda self, tokens: len(tokens))
    (row,) = whole(seed=seed)
    assert len(states.restored) == restored
    # "assistant:", the answer and the end of its message come after the prompt; then the next message begins.
    assert [len(tokens) for tokens in states.kept] == [row["prompt_tokens"] + 3 + 6 + 3]


@pytest.mark.parametrize(("choice", "root"), [("required", "root ::= call\n"), ("auto", "root ::= ")])
def test_calls_are_written_by_a_grammar(monkeypatch: pytest.MonkeyPatch, choice: str, root: str) -> None:
    made: list[Sampling] = []
    stream = ScriptedGenerator.stream

    def noted(self: Any, tokens: Any, sampling: Sampling, *rest: Any) -> Any:
        made.append(sampling)
        return stream(self, tokens, sampling, *rest)

    monkeypatch.setattr(ScriptedGenerator, "stream", noted)
    whole(tools=CLOCK, tool_choice=choice)
    (sampling,) = made
    assert sampling.grammar is not None
    assert sampling.grammar.startswith(root)
    assert "clock" in sampling.grammar


def test_what_was_held_back_as_the_beginning_of_a_call_is_shown_at_the_end() -> None:
    model = {"default": "<tool"}
    assert whole(model=model, tools=CLOCK)[0]["text"] == "<tool"
    assert "".join(piece["text"] for piece in pieces(model=model, tools=CLOCK)) == "<tool"
    assert all(piece["text"] or piece["finish_reason"] for piece in pieces(tools=CLOCK))
