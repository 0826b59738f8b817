"""Embedders and cross-encoders of sentence-transformers: any Hugging Face folder, and the reference for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mindful.errors import CorruptedModelError, InvalidParameterError, MissingPackageError, UndefinedFileError
from mindful.ports import Interrupts, Model, ModelFacts, ModelSpec, Vector
from mindful.providers.options import check_known, file_sha256, integer, readable_file
from mindful.text import pieces

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

_BATCH = 8
"""Texts between two looks at pending cancels."""
_CHARACTERS = 64
"""Characters a token that are read: tokens are shorter on average, so the end of a huge text is not tokenized."""


class SentenceEmbedder:
    """A sentence-transformers model on the CPU."""

    def __init__(self, model: SentenceTransformer, interrupts: Interrupts | None) -> None:
        self._model = model
        self._interrupts = interrupts
        self.context_length = model.max_seq_length
        self.dims = len(model.encode("dimensions"))

    def embed(self, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
        """Embed texts as unit vectors."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors: list[Vector] = [()] * len(texts)
        for start in range(0, len(order), _BATCH):
            interrupts.check()
            part = order[start : start + _BATCH]
            rows = self._model.encode(
                [texts[at][: self.context_length * _CHARACTERS] for at in part],
                batch_size=_BATCH,
                normalize_embeddings=True,
                show_progress_bar=False,
            )
            for at, row in zip(part, rows, strict=True):
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
        """Let the garbage collector have the weights."""
        del self._model


class SentenceReranker:
    """A cross-encoder on the CPU."""

    def __init__(self, model: CrossEncoder) -> None:
        if model.num_labels != 1:
            raise InvalidParameterError(
                f"the cross-encoder has {model.num_labels} labels",
                "A reranker has one: how well a text answers.",
            )
        self._model = model
        self.context_length = model.max_seq_length

    def score(self, query: str, texts: Sequence[str], interrupts: Interrupts) -> Iterator[float]:
        """Yield the scores as the model's own activation gives them."""
        for start in range(0, len(texts), _BATCH):
            interrupts.check()
            longest = self.context_length * _CHARACTERS
            pairs = [(query[:longest], text[:longest]) for text in texts[start : start + _BATCH]]
            yield from map(float, self._model.predict(pairs, batch_size=_BATCH, show_progress_bar=False))

    def close(self) -> None:
        """Let the garbage collector have the weights."""
        del self._model


def inspect(kind: str, source: str, options: Mapping[str, Any]) -> ModelFacts:
    """Load a folder once, and tell what it holds."""
    if kind == "generator":
        raise InvalidParameterError(
            f"sentence_transformers has no {kind}",
            "Register it as an embedder or reranker, or a GGUF file with llama_cpp.",
        )
    check_known(options, ("threads",))
    model = _model(kind, source, options)
    weights = next(iter(sorted(Path(source).glob("*.safetensors"))), Path(source) / "config.json")
    return ModelFacts(
        sha256=file_sha256(str(weights)),
        context_length=model.context_length,
        dims=model.dims if isinstance(model, SentenceEmbedder) else None,
        licence=None,
    )


def load(spec: ModelSpec, interrupts: Interrupts) -> Model:
    """Load a registered folder."""
    return _model(spec.kind, spec.source, spec.options, interrupts)


def _model(
    kind: str, source: str, options: Mapping[str, Any], interrupts: Interrupts | None = None
) -> SentenceEmbedder | SentenceReranker:
    if not readable_file(f"{source}/config.json"):
        raise UndefinedFileError(
            f'there is no model folder "{source}"',
            "The path must be absolute, hold a config.json, and be readable by the server's operating system user.",
        )
    try:
        import torch
        from sentence_transformers import CrossEncoder, SentenceTransformer
    except ImportError as error:
        raise MissingPackageError(
            f"the provider sentence_transformers is not installed: {error}",
            "Install pg-mindful[sentence-transformers] into the server's Python environment, and reconnect.",
        ) from None
    # Threads of torch spin while they wait, and a database shares its cores.
    torch.set_num_threads(integer(options, "threads", 1, 1, 64))
    try:
        if kind == "reranker":
            return SentenceReranker(CrossEncoder(source, device="cpu", local_files_only=True))
        return SentenceEmbedder(SentenceTransformer(source, device="cpu", local_files_only=True), interrupts)
    except (OSError, ValueError, RuntimeError) as error:
        raise CorruptedModelError(
            f'the model folder "{source}" cannot be loaded: {error}', "Copy it again, with all its files."
        ) from None
