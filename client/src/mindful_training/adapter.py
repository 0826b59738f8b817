"""Adapters as GGUF files for llama.cpp, with tensors named and ordered as in the base's file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_KEY = re.compile(r"layers\.(?P<layer>\d+)\.(?P<module>\w+\.\w+)\.lora_(?P<part>[AB])\.weight$")


def write(path: Path, state: Mapping[str, Any], alpha: float, config: Any) -> None:
    """Write an adapter of the architecture `llama` atomically."""
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, alpha)
    for key, tensor in sorted(state.items()):
        match = _KEY.search(key)
        if match is None:
            raise ValueError(f"tensor {key} is not a LoRA matrix")
        name = _NAMES[match["module"]]
        matrix = np.asarray(tensor, dtype=np.float32)
        if match["part"] == "B" and name in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if name == "attn_q" else config.num_key_value_heads
            matrix = permuted(matrix, heads)
        writer.add_tensor(
            f"blk.{match['layer']}.{name}.weight.lora_{match['part'].lower()}", np.ascontiguousarray(matrix)
        )
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        part.chmod(0o644)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def permuted(matrix: Any, heads: int) -> Any:
    """Order rows for llama.cpp's rotary embedding: the two halves of each head interleaved."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
