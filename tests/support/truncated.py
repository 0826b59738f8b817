"""The default generator cut to its first layers: it says nothing sensible, and is trained in seconds."""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFReader, GGUFWriter

_LAYERS = 2


def write_truncated(path: Path, base: str) -> str:
    """Write a GGUF with the base's tokenizer, embeddings and first layers, and return its path."""
    reader = GGUFReader(base)
    writer = GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = _LAYERS if name == "llama.block_count" else field.contents()
        writer.add_key_value(name, value, field.types[0], sub_type=field.types[-1])
    for tensor in reader.tensors:
        block = tensor.name.removeprefix("blk.").split(".")[0]
        if not block.isdigit() or int(block) < _LAYERS:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.chmod(0o644)
    return str(path)
