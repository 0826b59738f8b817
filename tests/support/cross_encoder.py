"""A small cross-encoder with random weights, written without PyTorch, whose import takes seconds."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

_WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "a",
    "red",
    "blue",
    "fox",
    "bird",
    "sleeps",
    "sings",
]
_WIDTH, _WIDE, _LAYERS, _POSITIONS = 32, 64, 2, 128
_CONFIG = {
    "architectures": ["BertForSequenceClassification"],
    "model_type": "bert",
    "vocab_size": len(_WORDS),
    "hidden_size": _WIDTH,
    "num_hidden_layers": _LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": _WIDE,
    "max_position_embeddings": _POSITIONS,
    "id2label": {"0": "LABEL_0"},
    "label2id": {"LABEL_0": 0},
}


def write_cross_encoder(folder: Path) -> None:
    """Write model and tokenizer."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(_WORDS))
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": _POSITIONS})
    )
    random = np.random.default_rng(1)
    header, data = {}, b""
    for name, shape in _shapes():
        ones = name.endswith("LayerNorm.weight")
        values = np.ones(shape) if ones else 0.5 * random.standard_normal(shape)
        weights = (0 * values if name.endswith(".bias") else values).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(weights)]}
        data += weights
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, rows in (("word", len(_WORDS)), ("position", _POSITIONS), ("token_type", 2)):
        yield f"bert.embeddings.{name}_embeddings.weight", (rows, _WIDTH)
    yield from _norm("bert.embeddings")
    for layer in range(_LAYERS):
        place = f"bert.encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            yield from _linear(f"{place}.attention.self.{name}", _WIDTH, _WIDTH)
        yield from _linear(f"{place}.attention.output.dense", _WIDTH, _WIDTH)
        yield from _norm(f"{place}.attention.output")
        yield from _linear(f"{place}.intermediate.dense", _WIDE, _WIDTH)
        yield from _linear(f"{place}.output.dense", _WIDTH, _WIDE)
        yield from _norm(f"{place}.output")
    yield from _linear("bert.pooler.dense", _WIDTH, _WIDTH)
    yield from _linear("classifier", 1, _WIDTH)


def _linear(name: str, rows: int, columns: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (rows, columns)
    yield f"{name}.bias", (rows,)


def _norm(name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.LayerNorm.weight", (_WIDTH,)
    yield f"{name}.LayerNorm.bias", (_WIDTH,)
