"""Weights that the server reads: adapters for the default generator, and that generator cut short."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter

_SHAPES = {"attn_v": (192, 576), "attn_output": (576, 576), "ffn_down": (576, 1536)}
"""Rows and columns of the matrices of SmolLM2-135M that are changed."""
_LAYERS = 30
_RANK = 4
KEPT = 2
"""Layers of the generator that is cut short: it says nothing sensible, and is trained in seconds."""


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


def write_truncated(path: Path, base: str, *, without: str = "") -> str:
    """Write a GGUF with the base's tokenizer, embeddings and first layers, and return its path.

    The metadata named by `without` is left out.
    """
    reader = GGUFReader(base)
    writer = GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", without):
            continue
        value = KEPT if name == "llama.block_count" else field.contents()
        writer.add_key_value(name, value, field.types[0], sub_type=field.types[-1])
    for tensor in reader.tensors:
        block = tensor.name.removeprefix("blk.").split(".")[0]
        if not block.isdigit() or int(block) < KEPT:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    return _written(writer, path)


def _written(writer: GGUFWriter, path: Path) -> str:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.chmod(0o644)
    return str(path)


def _weights(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)
