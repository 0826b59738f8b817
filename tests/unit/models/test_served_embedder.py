"""Embedders and rerankers behind a server: what of a text is sent, and in which order vectors and scores come."""

from __future__ import annotations

import array
import base64
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mindful.core.errors import EngineAnswerError
from mindful.models.providers.openai.embedder import ServedEmbedder, ServedReranker
from unit.fakes import FakeDatabase

START, END = 1, 2
CONTEXT = 10
HOST = FakeDatabase()


class Api:
    """Embeds a text as its length, last first; tokens are characters, between two of the model's own."""

    address = SimpleNamespace(root="", path="/v1", origin="http://localhost")

    def __init__(self, vectors: Sequence[Any] | None = None, scores: Sequence[float] = ()) -> None:
        self.sent: list[Any] = []
        self.tokenized: list[str] = []
        self.vectors, self.scores = vectors, scores

    def post(self, path: str, body: Mapping[str, Any], _interrupts: object) -> Mapping[str, Any]:
        if path == "/tokenize":
            self.tokenized.append(body["content"])
            tokens = [100 + ord(one) for one in body["content"]]
            return {"tokens": [START, *tokens, END] if body["add_special"] else tokens}
        if path == "/v1/rerank":
            self.sent.append(body["documents"])
            found = enumerate(self.scores[: len(body["documents"])])
            return {"results": [{"index": at, "relevance_score": score} for at, score in found][::-1]}
        self.sent += body["input"]
        rows: list[dict[str, Any]] = [
            {"index": at, "embedding": [1.0, len(text)]} for at, text in enumerate(body["input"])
        ]
        if body.get("encoding_format") == "base64":
            for row in rows:
                row["embedding"] = base64.b64encode(array.array("f", row["embedding"]).tobytes()).decode()
        for row, vector in zip(rows, self.vectors or (), strict=False):
            row["embedding"] = vector
        return {"data": rows[::-1]}


def embedder(api: Api, native: bool = False, dims: int | None = 2, **options: Any) -> ServedEmbedder:
    given = {"model": "m", "context_length": CONTEXT, "server": "llama.cpp" if native else "openai"}
    return ServedEmbedder(cast(Any, api), HOST, dims, 1, given | options)


@pytest.mark.parametrize("native", [False, True])
def test_vectors_come_in_the_order_of_their_texts(native: bool) -> None:
    texts = ["a" * (1 + at * 7 % 8) for at in range(70)]
    api = Api()
    found = embedder(api, native).embed(texts, HOST)
    assert [round(second / first) for first, second in found] == [len(text) for text in texts]
    assert all(sum(value**2 for value in vector) == pytest.approx(1) for vector in found)
    assert sorted(api.sent) == sorted(texts)
    assert embedder(api, native, dims=None).dims == 2


@pytest.mark.parametrize(("length", "sent"), [(8, 8), (9, 9), (30, 30), (31, 30), (1000, 30)])
def test_a_text_past_the_context_is_cut_before_it_is_sent(length: int, sent: int) -> None:
    api = Api()
    embedder(api).embed(["a" * length], HOST)
    assert api.sent == ["a" * sent]


@pytest.mark.parametrize(
    ("text", "kept"), [("a" * 8, None), ("a" * 9, 8), ("\u00e9" * 4, None), ("\u00e9" * 5, 5)]
)
def test_where_the_server_shows_tokens_the_last_ones_are_left_out(text: str, kept: int | None) -> None:
    api = Api()
    embedder(api, native=True).embed([text], HOST)
    tokens = None if kept is None else [START, *[100 + ord(text[0])] * kept, END]
    assert api.sent == [text if tokens is None else tokens]


def test_of_a_huge_text_only_the_beginning_is_tokenized() -> None:
    api = Api()
    embedder(api, native=True).embed(["a" * 100_000], HOST)
    assert [len(text) for text in api.tokenized] == [64 * CONTEXT]
    assert [len(tokens) for tokens in api.sent] == [CONTEXT]


def test_accents_are_left_out_where_the_model_wants_none() -> None:
    api = Api()
    embedder(api, strip_accents=True).embed(["caf\u00e9"], HOST)
    embedder(api).embed(["caf\u00e9"], HOST)
    assert api.sent == ["cafe", "caf\u00e9"]


def test_tokens_are_counted_or_estimated() -> None:
    assert embedder(Api(), native=True).count("caf\u00e9 noir") == 9
    assert [embedder(Api()).count(text) for text in ("", "abc", "abcd", "\u00e9\u00e9")] == [0, 1, 2, 2]


@pytest.mark.parametrize(
    "vector", [[0.0, 0.0], [float("nan"), 1.0], ["a", 1.0], None, [1.0], [1.0, 1.0, 1.0]]
)
def test_a_vector_that_is_none_is_refused(vector: Any) -> None:
    with pytest.raises(EngineAnswerError):
        embedder(Api([vector])).embed(["a", "b"], HOST)


@pytest.mark.parametrize("indexes", [[0], [0, 0], [0, 1, 2], [1, 2], [0, None], [0, "first"]])
def test_each_text_has_one_vector(monkeypatch: pytest.MonkeyPatch, indexes: list[Any]) -> None:
    data = [{"index": index, "embedding": [1.0, 1.0]} for index in indexes]
    api = Api()
    monkeypatch.setattr(api, "post", lambda *_: {"data": data})
    with pytest.raises(EngineAnswerError):
        embedder(api).embed(["a", "b"], HOST)


def test_scores_come_in_the_order_of_their_texts_eight_at_a_time() -> None:
    api = Api(scores=[at / 10 for at in range(8)])
    reranker = ServedReranker(cast(Any, api), HOST, {"model": "m"})
    texts = [f"text {at}" for at in range(17)]
    assert list(reranker.score("query", texts, HOST)) == [at % 8 / 10 for at in range(17)]
    assert api.sent == [texts[:8], texts[8:16], texts[16:]]


@pytest.mark.parametrize("scores", [[0.1], [0.1, float("inf")], [0.1, "high"]])
def test_scores_that_are_none_are_refused(scores: list[Any]) -> None:
    reranker = ServedReranker(cast(Any, Api(scores=scores)), HOST, {"model": "m"})
    with pytest.raises(EngineAnswerError):
        list(reranker.score("query", ["a", "b"], HOST))
