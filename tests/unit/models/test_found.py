"""What a server tells of its model becomes options, and a server's model is compared with the file's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mindful.core.errors import EngineAnswerError, InvalidParameterError
from mindful.models.providers.openai import _found
from mindful.models.providers.openai.standby import _same_embedder, _same_generator
from unit.fakes import FakeDatabase

HOST = FakeDatabase()
WHOLE = 1 << 20


class Told:
    """A server that answers with these, and counts tokens in the way of one."""

    address = SimpleNamespace(root="", path="/v1", origin="http://localhost")

    def __init__(
        self, *models: Mapping[str, Any], props: Mapping[str, Any] | None = None, counts: str | None = None
    ) -> None:
        self.models, self.props, self.counts = models, props, counts
        self.asked: list[str] = []

    def get(self, path: str, _host: object) -> Mapping[str, Any] | None:
        self.asked.append(path)
        return {"data": self.models} if path == "/v1/models" else self.props

    def ask(self, path: str, *_: object) -> Mapping[str, Any] | None:
        self.asked.append(path)
        return {"count": 1} if path == self.counts else {"tokens": []}


def found(told: Told, kind: str = "generator", **options: Any) -> dict[str, Any]:
    return _found(cast(Any, told), kind, options, cast(Any, None))


@pytest.mark.parametrize(
    ("counts", "server"),
    [(None, "openai"), ("/extras/tokenize/count", "llama-cpp-python"), ("/tokenize", "vllm")],
)
def test_a_server_is_known_by_how_it_counts(counts: str | None, server: str) -> None:
    told = Told({"id": "a"}, {"id": "b"}, counts=counts)
    assert found(told) == {"model": "a", "server": server, "context_length": 2048}
    assert found(told, model="b")["model"] == "b"


def test_a_server_that_an_option_names_is_asked_for_its_models_alone() -> None:
    told = Told({"id": "a"}, props={"default_generation_settings": {}}, counts="/tokenize")
    assert found(told, server="openai")["server"] == "openai"
    assert told.asked == ["/v1/models"]


@pytest.mark.parametrize("kind", ["generator", "embedder", "reranker"])
def test_the_context_is_the_models_unless_an_option_says_less(kind: str) -> None:
    own = {"generator": 2048, "embedder": 256, "reranker": 512}[kind]
    for longest, context in (
        (None, own),
        ("long", own),
        (15, own),
        (16, 16),
        (100, 100),
        (4096, own if kind == "embedder" else 4096),
        (2 * WHOLE, own if kind == "embedder" else 2 * WHOLE),
    ):
        told = Told({"id": "a", "max_model_len": longest}, {"id": "b", "max_model_len": 32})
        assert found(told, kind)["context_length"] == context
        assert found(told, kind, context_length=16)["context_length"] == 16
        assert found(told, kind, model="b", context_length=32)["context_length"] == 32
        with pytest.raises(InvalidParameterError):
            found(told, kind, model="b", context_length=33)


@pytest.mark.parametrize(
    ("slots", "given", "parallel"), [(None, {}, 4), (8, {}, 8), ("8", {}, 4), (8, {"parallel": 2}, 2)]
)
def test_a_server_of_llama_cpp_tells_its_slots_and_context(slots: Any, given: Any, parallel: int) -> None:
    props = {"default_generation_settings": {"n_ctx": 512}, "total_slots": slots}
    told = Told({"id": "a", "max_model_len": 64, "tags": ["llguidance"]}, props=props)
    expected = {"model": "a", "server": "llama.cpp", "context_length": 512, "parallel": parallel}
    assert found(told, **given) == expected | {"llguidance": True}
    assert "llguidance" not in found(told, "embedder")
    assert "llguidance" not in found(Told({"id": "a"}, props=props))


def test_a_server_without_a_model_is_told_which_by_an_option() -> None:
    for models in ((), ({},), ({"id": 3},)):
        with pytest.raises(EngineAnswerError, match="lists no model"):
            found(Told(*models))
        assert found(Told(*models), model="mine")["model"] == "mine"


class Model:
    """A model that has these log-probabilities and this embedding; a prompt's tokens are its messages' lengths."""

    def __init__(
        self, logprobs: Sequence[float] = (), vector: Sequence[float] = (1.0,), shift: int = 0
    ) -> None:
        self.logprobs, self.vector, self.dims = list(logprobs), list(vector), len(vector)
        self.shift = shift

    def encode(self, messages: Sequence[Any]) -> list[int]:
        """A template that differs adds tokens to the assistant's messages alone."""
        return [len(one.content) + self.shift * (one.role == "assistant") for one in messages]

    def next_logprobs(self, tokens: Sequence[int], candidates: Sequence[str], _host: object) -> list[float]:
        return self.logprobs

    def embed(self, texts: Sequence[str], _host: object) -> list[list[float]]:
        return [self.vector for _ in texts]


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ([-1.0, -2.0], [-1.0, -2.0], True),
        ([-1.0, -2.0], [-1.49, -1.51], True),
        ([-1.0, -2.0], [-1.0, -2.5], False),
        ([-1.0, -2.0], [-0.5, -2.0], False),
        ([-1.0, -12.0], [-1.0, -18.0], True),  # nearly impossible for both
        ([-1.0, -12.0], [-1.0, -9.0], False),
        ([-1.0, -9.0], [-1.0, -12.0], False),
    ],
)
def test_a_served_generator_is_the_files_if_it_expects_the_same(
    ours: list[float], theirs: list[float], same: bool
) -> None:
    compared = cast(Any, Model(ours)), cast(Any, Model(theirs)), HOST
    assert _same_generator(*compared) is same


def test_a_server_with_another_template_is_another_model() -> None:
    logprobs = [-1.0, -2.0]
    compared = cast(Any, Model(logprobs)), cast(Any, Model(logprobs, shift=1)), HOST
    assert not _same_generator(*compared)


@pytest.mark.parametrize(
    ("theirs", "same"),
    [([0.6, 0.8], True), ([0.61, 0.7924], True), ([0.65, 0.7599], False), ([0.6, 0.8, 0.0], False)],
)
def test_a_served_embedder_is_the_files_if_its_vectors_are(theirs: list[float], same: bool) -> None:
    compared = cast(Any, Model(vector=[0.6, 0.8])), cast(Any, Model(vector=theirs)), cast(Any, None)
    assert _same_embedder(*compared) is same
