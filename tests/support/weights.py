"""Weights that the server reads: adapters for the default generator, and that generator cut short."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFWriter

_SHAPES = {"attn_v": (192, 576), "attn_output": (576, 576), "ffn_down": (576, 1536)}
"""Rows and columns of the matrices of SmolLM2-135M that are changed."""
_LAYERS = 30
_RANK = 4
KEPT = 2
"""Layers of the generator that is cut short: it says nothing sensible, and is trained in seconds."""
TINY = 384
"""Tokens of control, of each byte, and of the first merges: llama.cpp reads so few in milliseconds."""


class _Reader(GGUFReader):
    """Reads a vocabulary in half a second instead of two: slices of a memory map are slow."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> np.ndarray:
        return np.frombuffer(self.data, dtype, int(count), int(offset))


_read = functools.cache(_Reader)


def write_adapter(
    path: Path,
    seed: int = 0,
    architecture: str = "llama",
    kind: str = "adapter",
    columns: int = 0,
    factor: float = 0.08,
    layers: int = _LAYERS,
) -> str:
    """Write a LoRA of random weights as GGUF, and return its path; `columns` are too many for the model."""
    random = np.random.default_rng(seed)
    writer = GGUFWriter(path, architecture)
    writer.add_type(kind)
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    for layer in range(layers):
        for name, (rows, width) in _SHAPES.items():
            tensor = f"blk.{layer}.{name}.weight"
            writer.add_tensor(f"{tensor}.lora_a", factor * _weights(random, (_RANK, width + columns)))
            writer.add_tensor(f"{tensor}.lora_b", factor * _weights(random, (rows, _RANK)))
    return _written(writer, path)


def write_truncated(path: Path, base: str, *, tokens: int | None = None, without: str = "") -> str:
    """Write a GGUF with the base's tokenizer, embeddings and first layers, and return its path.

    `tokens` are the first ones of the vocabulary that are kept: reading all takes most of the time of a cut model. The
    metadata named by `without` is left out. Adapters of the base cut to as many layers fit.
    """
    reader = _read(base)
    writer = GGUFWriter(path, str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name not in ("general.architecture", without):
            writer.add_key_value(name, _cut(reader, name, tokens), field.types[0], sub_type=field.types[-1])
    for tensor in reader.tensors:
        block = tensor.name.removeprefix("blk.").split(".")[0]
        if not block.isdigit() or int(block) < KEPT:
            data = tensor.data[:tokens] if tensor.name == "token_embd.weight" else tensor.data
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    return _written(writer, path)


def _cut(reader: GGUFReader, name: str, tokens: int | None) -> Any:
    field = reader.fields[name]
    if name.endswith(".block_count"):
        return KEPT
    if name.endswith(".vocab_size"):
        return tokens or field.contents()
    if name == "tokenizer.ggml.merges" and tokens:
        known = set(reader.fields["tokenizer.ggml.tokens"].contents(slice(tokens)))
        return [merge for merge in field.contents(slice(tokens)) if merge.replace(" ", "") in known]
    return field.contents(slice(tokens) if name.startswith("tokenizer.ggml.token") else slice(None))


def _written(writer: GGUFWriter, path: Path) -> str:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.chmod(0o644)
    return str(path)


def _weights(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)
