"""Write a BERT sentence encoder (safetensors, WordPiece vocabulary) as a GGUF file that llama.cpp runs."""

import json
from pathlib import Path
from typing import Any

import gguf
from gguf import GGMLQuantizationType, TokenType
from safetensors.numpy import load_file

# llama.cpp pools by itself, and position_ids is only the sequence 0, 1, 2, ...
UNUSED_TENSORS = ("embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias")
POOLING = {
    "pooling_mode_mean_tokens": gguf.PoolingType.MEAN,
    "pooling_mode_cls_token": gguf.PoolingType.CLS,
}


def write_bert_gguf(
    source: Path, target: Path, *, name: str, license_name: str, weights: str = "F16"
) -> None:
    """Convert the model folder `source`; `weights` is the type of the matrices (F32, F16, BF16, Q8_0)."""
    config = json.loads((source / "config.json").read_text())
    writer = gguf.GGUFWriter(target, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.BERT])
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(name)
    writer.add_license(license_name)
    writer.add_file_type(gguf.LlamaFileType["ALL_F32" if weights == "F32" else f"MOSTLY_{weights}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_architecture(writer, source, config)
    _add_vocabulary(writer, source, config)
    _add_tensors(writer, source, config, GGMLQuantizationType[weights])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_architecture(writer: Any, source: Path, config: dict[str, Any]) -> None:
    pooling = json.loads((source / "1_Pooling" / "config.json").read_text())
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(next(kind for mode, kind in POOLING.items() if pooling.get(mode)))
    writer.add_token_type_count(config["type_vocab_size"])


def _add_vocabulary(writer: Any, source: Path, config: dict[str, Any]) -> None:
    """Add the WordPiece tokens: llama.cpp marks the start of a word, BERT its continuation."""
    special = json.loads((source / "special_tokens_map.json").read_text())
    vocabulary = (source / "vocab.txt").read_text(encoding="utf-8").split("\n")[: config["vocab_size"]]
    if len(vocabulary) != config["vocab_size"]:
        raise ValueError(f"{source}: {len(vocabulary)} tokens, config.json says {config['vocab_size']}")
    control = set(special.values())
    writer.add_tokenizer_model("bert")
    # llama.cpp strips accents by dropping more characters than BERT does, and leaves Hangul composed: with
    # these keys it lowers case only, and mindful strips the accents as BERT does before it tokenizes.
    writer.add_bool("tokenizer.ggml.normalizer.lowercase", True)
    writer.add_bool("tokenizer.ggml.normalizer.strip_accents", False)
    writer.add_bool("mindful.strip_accents", True)
    writer.add_token_list([token if token in control else _phantom_space(token) for token in vocabulary])
    writer.add_token_types([TokenType.CONTROL if t in control else TokenType.NORMAL for t in vocabulary])
    writer.add_bos_token_id(vocabulary.index(special["cls_token"]))
    writer.add_eos_token_id(vocabulary.index(special["sep_token"]))
    for role in ("unk", "sep", "pad", "mask"):
        getattr(writer, f"add_{role}_token_id")(vocabulary.index(special[f"{role}_token"]))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def _phantom_space(token: str) -> str:
    return token[2:] if token.startswith("##") else "\u2581" + token


def _add_tensors(writer: Any, source: Path, config: dict[str, Any], matrices: GGMLQuantizationType) -> None:
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config["num_hidden_layers"])
    for tensor, values in load_file(source / "model.safetensors").items():
        if tensor in UNUSED_TENSORS:
            continue
        name = names.get_name(tensor, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise ValueError(f"{source}: llama.cpp has no place for tensor {tensor}")
        # Norms and biases, and what is added to every token, keep their precision: together they are small.
        small = values.ndim == 1 or name in ("position_embd.weight", "token_types.weight")
        dtype = GGMLQuantizationType.F32 if small else matrices
        writer.add_tensor(name, gguf.quantize(values, dtype), raw_dtype=dtype)
