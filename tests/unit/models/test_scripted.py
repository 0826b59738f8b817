from __future__ import annotations

import math
from typing import Any

import mindful_scripted as scripted
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.core.errors import InvalidParameterError
from mindful.core.ports import Completion, Message, ModelSpec, Sampling, Vector
from mindful_scripted import ScriptedEmbedder, ScriptedGenerator
from unit.fakes import FakeDatabase

SCRIPT = {
    "replies": [["dog", "Rex is your dog."], ["name", "Ana."]],
    "default": "Who knows?",
    "logprob": -0.5,
}


def answer(generator: ScriptedGenerator, prompt: str, sampling: Sampling) -> tuple[list[str], Completion]:
    completion = Completion()
    tokens = generator.encode([Message("user", prompt)])
    return list(generator.stream(tokens, sampling, completion, FakeDatabase({}))), completion


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("prompt", "reply"),
    [("my name?", "Ana."), ("my dog's name?", "Rex is your dog."), ("the weather?", "Who knows?")],
)
def test_the_first_text_in_the_prompt_gives_the_reply(prompt: str, reply: str) -> None:
    pieces, completion = answer(ScriptedGenerator(SCRIPT), prompt, Sampling())
    assert "".join(pieces) == reply
    assert completion.finish_reason == "stop"
    assert completion.logprobs == [-0.5] * len(pieces)


def test_max_tokens_cuts_the_reply() -> None:
    pieces, completion = answer(ScriptedGenerator(SCRIPT), "dog", Sampling(max_tokens=2))
    assert pieces == ["Rex", " is"]
    assert completion.finish_reason == "length"


def test_a_stop_string_ends_the_reply() -> None:
    pieces, completion = answer(ScriptedGenerator(SCRIPT), "dog", Sampling(stop=("your",)))
    assert "".join(pieces) == "Rex is "
    assert completion.finish_reason == "stop"


def test_a_cancel_is_looked_for_before_every_token() -> None:
    generator, db = ScriptedGenerator(SCRIPT), FakeDatabase({})
    tokens = generator.encode([Message("user", "dog")])
    assert len(list(generator.stream(tokens, Sampling(), Completion(), db))) == db.checks == 4


@given(st.text(), st.integers(0, 20))
def test_truncate_keeps_a_beginning_of_so_many_tokens(text: str, tokens: int) -> None:
    generator = ScriptedGenerator({})
    kept = generator.truncate(text, tokens)
    assert text.startswith(kept)
    assert generator.count(kept) == min(tokens, generator.count(text))


def test_the_scripted_answer_is_the_likeliest_and_probabilities_add_up() -> None:
    generator = ScriptedGenerator({"default": "Yes", "logprob": -0.2})
    tokens = generator.encode([Message("user", "Is it?")])
    yes, no = generator.next_logprobs(tokens, ("Yes", "No"), FakeDatabase({}))
    assert yes == -0.2
    assert math.exp(yes) + math.exp(no) == pytest.approx(1)


def test_texts_that_share_words_are_near_and_vectors_are_unit() -> None:
    embedder = ScriptedEmbedder({"dims": 64})
    dog, rex, tax = embedder.embed(["my dog Rex", "the dog called Rex", "income tax"], FakeDatabase({}))
    assert [len(vector) for vector in (dog, rex, tax)] == [64] * 3
    assert math.hypot(*dog) == pytest.approx(1)
    assert cosine(dog, rex) > 0.5 > cosine(dog, tax)


@pytest.mark.parametrize(
    "options",
    [
        {"replies": [["x"]]},
        {"replies": 5},
        {"logprob": "high"},
        {"context_length": 0},
        {"context_length": True},
    ],
)
def test_a_broken_script_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        scripted.load(ModelSpec("s", "generator", "scripted", "", "", options), FakeDatabase({}))
    assert caught.value.hint


def test_other_options_are_another_model() -> None:
    facts = [scripted.inspect("embedder", "", {"dims": dims}) for dims in (8, 8, 16)]
    assert [fact.dims for fact in facts] == [8, 8, 16]
    assert facts[0] == facts[1] != facts[2]
    assert scripted.inspect("generator", "", {}).context_length == 2048
