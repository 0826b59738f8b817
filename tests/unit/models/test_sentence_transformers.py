"""Embedders and rerankers of sentence-transformers, over models that note what they are given."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindful.core.errors import InvalidParameterError, UndefinedFileError
from mindful.models.providers.sentence_transformers import SentenceEmbedder, SentenceReranker, inspect
from unit.models.host import Host


class Row(list[float]):
    """A row of an array."""

    def tolist(self) -> list[float]:
        return list(self)


class Encoder:
    """An embedder whose vectors are the texts' lengths."""

    max_seq_length = 4

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.tokenizer = SimpleNamespace(encode=lambda text, add_special_tokens: text.split())

    def encode(self, texts: list[str] | str, **options: Any) -> Any:
        if isinstance(texts, str):
            return Row([0.0] * 3)
        assert options == {"batch_size": 8, "normalize_embeddings": True, "show_progress_bar": False}
        self.batches.append(texts)
        return [Row([float(len(text)), 0.0, 1.0]) for text in texts]


class Scorer:
    """A cross-encoder whose scores are the texts' lengths."""

    max_seq_length, num_labels = 4, 1

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, str]]] = []

    def predict(self, pairs: list[tuple[str, str]], batch_size: int, show_progress_bar: bool) -> list[int]:
        assert (batch_size, show_progress_bar) == (8, False)
        self.batches.append(pairs)
        return [len(text) for _, text in pairs]


@given(st.lists(st.integers(0, 300), max_size=40))
def test_vectors_are_in_the_order_of_their_texts_and_a_long_text_is_read_to_64_characters_a_token(
    lengths: list[int],
) -> None:
    model, host = Encoder(), Host(Path())
    embedder = SentenceEmbedder(model, None)
    assert (embedder.context_length, embedder.dims) == (4, 3)
    vectors = embedder.embed(["x" * length for length in lengths], host)
    assert [vector[0] for vector in vectors] == [min(length, 256) for length in lengths]
    # Texts of like length share a batch, as the longest decides what a batch costs.
    assert [len(text) for batch in model.batches for text in batch] == sorted(
        min(one, 256) for one in lengths
    )
    assert host.checks == len(model.batches)


@pytest.mark.parametrize(
    ("lengths", "batches"),
    [
        ([10] * 17, [8, 8, 1]),
        ([500, 500], [2]),
        ([500, 501], [1, 1]),
        ([1, 2, 300, 500], [3, 1]),  # the shorter ones are filled up: 3 times 300 characters
        ([5000, 5000, 1], [1, 1, 1]),
        ([], []),
    ],
)
def test_a_batch_has_eight_texts_and_a_thousand_characters_filled_up(
    lengths: list[int], batches: list[int]
) -> None:
    model, scorer, host = Encoder(), Scorer(), Host(Path())
    model.max_seq_length = scorer.max_seq_length = 100
    SentenceEmbedder(model, None).embed(["x" * length for length in lengths], host)
    assert [len(batch) for batch in model.batches] == batches
    list(SentenceReranker(scorer).score("", ["x" * length for length in sorted(lengths)], host))
    assert [len(batch) for batch in scorer.batches] == batches


def test_the_query_counts_with_each_text() -> None:
    scorer = Scorer()
    list(SentenceReranker(scorer).score("q" * 256, ["x" * 256] * 5, Host(Path())))
    assert [len(batch) for batch in scorer.batches] == [1] * 5


@pytest.mark.parametrize("kind", ["encode", "predict"])
def test_a_batch_is_read_beside_the_backends_own_thread(kind: str) -> None:
    """The backend's thread looks for cancels, and takes part in what waits for all backends."""
    threads: list[threading.Thread] = []

    def noting(made: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            threads.append(threading.current_thread())
            return made(*given, **options)

        return call

    encoder, scorer = Encoder(), Scorer()
    embedder, reranker = SentenceEmbedder(encoder, None), SentenceReranker(scorer)
    if kind == "encode":
        encoder.encode = noting(encoder.encode)  # type: ignore[method-assign]
        embedder.embed(["x"], Host(Path()))
    else:
        scorer.predict = noting(scorer.predict)  # type: ignore[method-assign]
        list(reranker.score("q", ["x"], Host(Path())))
    assert threads
    assert threading.main_thread() not in threads


@given(st.lists(st.integers(0, 300), max_size=40))
def test_scores_are_in_the_order_of_their_texts(lengths: list[int]) -> None:
    model, host = Scorer(), Host(Path())
    reranker = SentenceReranker(model)
    assert reranker.context_length == 4
    scores = list(reranker.score("q" * 300, ["x" * length for length in lengths], host))
    assert scores == [min(length, 256) for length in lengths]
    assert all(isinstance(score, float) for score in scores)
    assert {len(query) for batch in model.batches for query, _ in batch} <= {256}
    assert host.checks == len(model.batches)


def test_tokens_are_counted_piece_by_piece_with_looks_for_a_cancel() -> None:
    host = Host(Path())
    text = "word " * 20_000
    embedder = SentenceEmbedder(Encoder(), host)
    assert embedder.count("one two three") == 3
    before = host.checks
    assert embedder.count(text) == 20_000
    assert host.checks - before > 1
    assert SentenceEmbedder(Encoder(), None).count("one two") == 2


@pytest.mark.parametrize("labels", [0, 2, 3])
def test_a_cross_encoder_has_one_label(labels: int) -> None:
    model = Scorer()
    model.num_labels = labels
    with pytest.raises(InvalidParameterError, match=f"has {labels} labels"):
        SentenceReranker(model)


def test_a_closed_model_is_given_to_the_garbage_collector() -> None:
    for model in (SentenceReranker(Scorer()), SentenceEmbedder(Encoder(), None)):
        assert not model.served
        model.close()
        assert not hasattr(model, "_model")


def test_what_can_be_no_folder_of_a_model_is_refused_before_anything_is_imported(tmp_path: Path) -> None:
    host = Host(Path())
    with pytest.raises(InvalidParameterError, match="does not support kind generator"):
        inspect("generator", str(tmp_path), {}, host)
    with pytest.raises(InvalidParameterError, match="vector_type"):
        inspect("reranker", str(tmp_path), {"vector_type": "halfvec"}, host)
    for kind, options in (("embedder", {"vector_type": "halfvec"}), ("reranker", {"threads": 2})):
        with pytest.raises(UndefinedFileError, match="there is no model folder"):
            inspect(kind, str(tmp_path), options, host)


@pytest.mark.parametrize(
    "config", ["", "[]", "{}", '{"model_type": 3}', "[" * 100_000, "\x00", '"model_type"']
)
def test_a_folder_that_is_no_model_is_as_one_that_is_missing(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    told = set()
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UndefinedFileError) as caught:
            inspect("embedder", str(folder), {}, Host(Path()))
        told.add((str(caught.value).replace(str(folder), ""), caught.value.hint))
    assert len(told) == 1
