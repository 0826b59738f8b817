"""Adapters as files: rows in llama.cpp's order, and nothing left half-written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gguf import GGUFReader
from mindful_training.adapter import permuted, write

CONFIG = SimpleNamespace(num_attention_heads=2, num_key_value_heads=1)
PREFIX = "base_model.model.model.layers.3"


def test_rows_of_a_head_are_interleaved() -> None:
    rows = np.arange(8, dtype=np.float32).reshape(8, 1)
    assert permuted(rows, 2).ravel().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_a_file_holds_the_matrices(tmp_path: Path) -> None:
    first, second = np.ones((2, 8), np.float32), np.arange(16, dtype=np.float32).reshape(8, 2)
    path = tmp_path / "a.gguf"
    state = {
        f"{PREFIX}.self_attn.{name}.lora_{part}.weight": matrix
        for name in ("q_proj", "v_proj")
        for part, matrix in (("A", first), ("B", second))
    }
    write(path, state, 32, CONFIG)
    file = GGUFReader(path)
    assert file.fields["adapter.type"].contents() == "lora"
    assert file.fields["adapter.lora.alpha"].contents() == 32
    found = {tensor.name: np.array(tensor.data) for tensor in file.tensors}
    assert found["blk.3.attn_v.weight.lora_a"].tolist() == first.tolist()
    assert found["blk.3.attn_v.weight.lora_b"].tolist() == second.tolist()
    assert found["blk.3.attn_q.weight.lora_b"].tolist() == permuted(second, 2).tolist()


def test_what_is_no_lora_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a LoRA matrix"):
        write(tmp_path / "a.gguf", {"model.lm_head.weight": np.ones((2, 2), np.float32)}, 32, CONFIG)
    assert list(tmp_path.iterdir()) == []
