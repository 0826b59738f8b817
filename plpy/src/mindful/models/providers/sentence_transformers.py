"""Embedders and cross-encoders of sentence-transformers, from Hugging Face folders."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mindful.core.apart import apart
from mindful.core.errors import (
    CorruptedModelError,
    InvalidParameterError,
    UndefinedFileError,
)
from mindful.core.extra import extra
from mindful.core.ports import Interrupts, Model, ModelFacts, ModelSpec, Vector
from mindful.core.text import pieces
from mindful.models.providers.options import check_known, file_sha256, integer, model_folder

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

_BATCH = 8
_BATCH_CHARACTERS = 1000
"""Texts and characters between two checks for interrupts: MiniLM reads 256 tokens in 0.2 s. One text may be longer."""
_CHARACTERS = 64
"""Characters per token to read. Tokens are shorter on average, so the end of a huge text is not tokenized."""


class SentenceEmbedder:
    """A sentence-transformers model on the CPU."""

    served = False

    def __init__(self, model: SentenceTransformer, interrupts: Interrupts | None) -> None:
        self._model = model
        self._interrupts = interrupts
        self.context_length = model.max_seq_length
        self.dims = len(model.encode("dimensions"))

    def embed(self, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
        """Embed texts as unit vectors."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors: list[Vector] = [()] * len(texts)
        places = iter(order)
        for batch in _batches([texts[at][: self.context_length * _CHARACTERS] for at in order]):
            encode = partial(
                self._model.encode,
                batch,
                batch_size=_BATCH,
                normalize_embeddings=True,
                show_progress_bar=False,
            )
            rows = _apart(encode, interrupts)
            for at, row in zip(islice(places, len(batch)), rows, strict=True):
                vectors[at] = row.tolist()
        return vectors

    def count(self, text: str) -> int:
        """Count the tokens of a text, without special tokens."""
        tokens = 0
        for piece in pieces(text):
            if self._interrupts is not None:
                self._interrupts.check()
            tokens += len(self._model.tokenizer.encode(piece, add_special_tokens=False))
        return tokens

    def close(self) -> None:
        """Release the weights to the garbage collector."""
        del self._model


class SentenceReranker:
    """A cross-encoder on the CPU."""

    served = False

    def __init__(self, model: CrossEncoder) -> None:
        if model.num_labels != 1:
            raise InvalidParameterError(
                f"the cross-encoder has {model.num_labels} labels",
                "Register a cross-encoder with one label, the score.",
            )
        self._model = model
        self.context_length = model.max_seq_length

    def score(self, query: str, texts: Sequence[str], interrupts: Interrupts) -> Iterator[float]:
        """Yield the scores after the model's own activation."""
        longest = self.context_length * _CHARACTERS
        for batch in _batches([text[:longest] for text in texts], len(query[:longest])):
            pairs = [(query[:longest], text) for text in batch]
            predict = partial(self._model.predict, pairs, batch_size=_BATCH, show_progress_bar=False)
            yield from map(float, _apart(predict, interrupts))

    def close(self) -> None:
        """Release the weights to the garbage collector."""
        del self._model


def _batches(texts: Sequence[str], beside: int = 0) -> Iterator[list[str]]:
    """Yield the texts in batches, each of which is read with so many other characters."""
    batch: list[str] = []
    for text in texts:
        longest = max(map(len, (*batch, text))) + beside  # shorter texts are filled up
        if batch and (len(batch) == _BATCH or (len(batch) + 1) * longest > _BATCH_CHARACTERS):
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


def _apart(work: Callable[[], Sequence[Any]], interrupts: Interrupts) -> Sequence[Any]:
    """Compute in a thread, as PyTorch looks for no cancel and takes part in no barrier."""
    return apart(lambda _stopped: work(), interrupts)


def inspect(kind: str, source: str, options: Mapping[str, Any], interrupts: Interrupts) -> ModelFacts:
    """Load a folder once and return its facts."""
    if kind == "generator":
        raise InvalidParameterError(
            f"sentence_transformers does not support kind {kind}",
            "Register the folder as an embedder or reranker, or a GGUF file with llama_cpp.",
        )
    check_known(options, ("threads", *(("vector_type",) if kind == "embedder" else ())))
    model = _model(kind, source, options, interrupts)
    weights = next(iter(sorted(Path(source).glob("*.safetensors"))), Path(source) / "config.json")
    return ModelFacts(
        sha256=file_sha256(str(weights), interrupts),
        context_length=model.context_length,
        dims=model.dims if isinstance(model, SentenceEmbedder) else None,
        license=None,
    )


def load(spec: ModelSpec, interrupts: Interrupts) -> Model:
    """Load a registered folder."""
    return _model(spec.kind, spec.source, spec.options, interrupts)


def _model(
    kind: str, source: str, options: Mapping[str, Any], interrupts: Interrupts
) -> SentenceEmbedder | SentenceReranker:
    if not model_folder(source):
        raise UndefinedFileError(
            f'there is no model folder "{source}" that the server can read',
            "Pass the absolute path of a folder whose config.json has a model_type, and which the server's operating "
            "system user can read.",
        )
    with extra("sentence-transformers"):
        # The import takes seconds.
        apart(lambda _stopped: importlib.import_module("sentence_transformers"), interrupts)
        interrupts.check()
        import torch
        from sentence_transformers import CrossEncoder, SentenceTransformer
    # Waiting threads of torch use processor time, which other connections need.
    torch.set_num_threads(integer(options, "threads", 1, 1, 64))
    loaded = CrossEncoder if kind == "reranker" else SentenceTransformer
    try:
        model = apart(lambda _stopped: loaded(source, device="cpu", local_files_only=True), interrupts)
        interrupts.check()
        return SentenceReranker(model) if kind == "reranker" else SentenceEmbedder(model, interrupts)
    except (OSError, ValueError, RuntimeError) as error:
        raise CorruptedModelError(
            f'the model folder "{source}" cannot be loaded: {error}',
            "Copy the folder again with all its files.",
        ) from None
