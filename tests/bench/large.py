"""Large models, embedded and served: files of true shapes with random weights, which are removed afterwards.

Usage: large.py [--sizes 1B 3B 8B] [--connections 1 8 32] [--tokens N] [--context N] [--folder FOLDER] [--write FILE],
with MINDFUL_DSN. FILE is docs/engines.md. A size needs its file and the memory of its contexts; a number of
connections whose embedded contexts would take more than half of the free memory is left out.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from engine import processor_ms
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from mindful_client.engine.size import available_bytes
from psycopg.types.json import Jsonb
from support.engine import Engine, running_engine
from support.markers import put
from support.models import model_files

_VOCABULARY = 128_256
_BLOCK, _BLOCK_BYTES = 32, 18
"""Numbers and bytes of a block of Q4_0: a scale (f16) and 32 numbers of 4 bits."""
_PIECE = 1 << 16
"""Blocks that are drawn at once."""


@dataclass(frozen=True)
class Shape:
    """The shape of a model of the architecture llama."""

    layers: int
    width: int
    inner: int
    heads: int
    groups: int
    """Heads of keys and values."""
    tied: bool
    """Whether the output uses the embedding's matrix."""

    @property
    def head(self) -> int:
        return self.width // self.heads

    def tensors(self) -> list[tuple[str, int, int]]:
        """Name, rows and columns of each matrix."""
        shared = self.groups * self.head
        of_layer = [
            ("attn_q", self.width, self.width),
            ("attn_k", shared, self.width),
            ("attn_v", shared, self.width),
            ("attn_output", self.width, self.width),
            ("ffn_gate", self.inner, self.width),
            ("ffn_up", self.inner, self.width),
            ("ffn_down", self.width, self.inner),
        ]
        ends = ["token_embd"] if self.tied else ["token_embd", "output"]
        return [(f"{name}.weight", _VOCABULARY, self.width) for name in ends] + [
            (f"blk.{layer}.{name}.weight", rows, columns)
            for layer in range(self.layers)
            for name, rows, columns in of_layer
        ]


SHAPES = {
    "1B": Shape(16, 2048, 8192, 32, 8, True),
    "3B": Shape(28, 3072, 8192, 24, 8, True),
    "8B": Shape(32, 4096, 14336, 32, 8, False),
}
"""Llama 3.1 and 3.2."""


def write_random(path: Path, shape: Shape, tokenizer: str) -> None:
    """Write a GGUF in Q4_0 with random weights and the tokenizer of another model, filled up to the vocabulary."""
    writer = GGUFWriter(path, "llama")
    _write_facts(writer, shape)
    _write_tokenizer(writer, tokenizer)
    matrices = shape.tensors()
    norms = [
        f"blk.{layer}.{name}.weight" for layer in range(shape.layers) for name in ("attn_norm", "ffn_norm")
    ]
    for name, rows, columns in matrices:
        size = rows * columns // _BLOCK * _BLOCK_BYTES
        writer.add_tensor_info(
            name,
            (rows, columns // _BLOCK * _BLOCK_BYTES),
            np.dtype(np.uint8),
            size,
            GGMLQuantizationType.Q4_0,
        )
    for name in (*norms, "output_norm.weight"):
        writer.add_tensor_info(name, (shape.width,), np.dtype(np.float32), shape.width * 4)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(0)
    for _, rows, columns in matrices:
        writer.write_tensor_data(_random_blocks(random, rows * columns // _BLOCK, columns))
    for _ in (*norms, "output_norm.weight"):
        writer.write_tensor_data(np.ones(shape.width, dtype=np.float32))
    writer.close()
    path.chmod(0o644)


def _write_facts(writer: GGUFWriter, shape: Shape) -> None:
    writer.add_context_length(8192)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.groups)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500_000.0)
    writer.add_rope_dimension_count(shape.head)
    writer.add_vocab_size(_VOCABULARY)


def _write_tokenizer(writer: GGUFWriter, base: str) -> None:
    for name, field in GGUFReader(base).fields.items():
        if not name.startswith("tokenizer."):
            continue
        value: Any = field.contents()
        if name == "tokenizer.ggml.tokens":
            value = [*value, *(f"<|reserved_{at}|>" for at in range(len(value), _VOCABULARY))]
        elif name == "tokenizer.ggml.token_type":
            value = [*value, *[1] * (_VOCABULARY - len(value))]
        writer.add_key_value(name, value, field.types[0], sub_type=field.types[-1])


def _random_blocks(random: np.random.Generator, blocks: int, columns: int) -> np.ndarray:
    """Draw blocks of Q4_0 whose numbers have the deviation of a trained layer."""
    piece = random.integers(0, 256, (min(blocks, _PIECE), _BLOCK_BYTES), dtype=np.uint8)
    scale = np.float16(0.217 / np.sqrt(columns))
    piece[:, :2] = np.frombuffer(scale.tobytes(), dtype=np.uint8)
    return np.resize(piece, (blocks, _BLOCK_BYTES))


@dataclass(frozen=True)
class First:
    """The first calls of a connection, in seconds and seconds of processor time, and its memory after them."""

    first: str
    again: str
    private_mb: float
    shared_mb: float


class Large:
    """The measurements of one size."""

    def __init__(self, db: psycopg.Connection, dsn: str, name: str, tokens: int) -> None:
        self.db, self.dsn, self.name, self.tokens = db, dsn, name, tokens

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.dsn, autocommit=True)

    def first(self, engine: Sequence[int]) -> First:
        """Make the first and the second call of a new connection, beside the processes of an engine."""
        with self.connect() as connection:
            pids = [connection.info.backend_pid, *engine]
            first = self._timed(connection, "Hi", pids)
            row = connection.execute("select private_bytes, shared_bytes from mindful_status()").fetchone()
            assert row is not None
            return First(first, self._timed(connection, "Hello again", pids), row[0] / 1e6, row[1] / 1e6)

    def _timed(self, connection: psycopg.Connection, prompt: str, pids: Sequence[int]) -> str:
        began, started = processor_ms(pids), time.perf_counter()
        connection.execute("select llm_generate(%s, %s, max_tokens => 1)", (prompt, self.name))
        return f"{time.perf_counter() - started:.2f} ({(processor_ms(pids) - began) / 1000:.2f})"

    def rate(self, connections: int) -> float:
        """Tokens a second of connections that used the model before and ask at once."""
        sql = "select completion_tokens from llm_generate_detail(%s, %s, max_tokens => %s)"
        with ExitStack() as opened:
            warm = [opened.enter_context(self.connect()) for _ in range(connections)]
            for connection in warm:
                connection.execute("select llm_generate('Hi', %s, max_tokens => 1)", (self.name,))

            def ask(at: int) -> int:
                row = warm[at].execute(sql.encode(), (f"Story {at}", self.name, self.tokens)).fetchone()
                assert row is not None
                return int(row[0])

            started = time.perf_counter()
            with ThreadPoolExecutor(connections) as pool:
                made = sum(pool.map(ask, range(connections)))
            return made / (time.perf_counter() - started)


def engine_mb(engine: Engine) -> tuple[float, float]:
    """Private and shared memory of the engine's processes."""
    totals = {"RssAnon": 0.0, "RssFile": 0.0}
    for child in engine.children():
        for line in Path(f"/proc/{child}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key in totals:
                totals[key] += int(value.split()[0]) / 1000
    return totals["RssAnon"], totals["RssFile"]


def measured(large: Large, counts: Sequence[int], threads: int) -> list[str]:
    """Return the rows of a size, embedded and served."""
    embedded = large.first(())
    fitting = [count for count in counts if count * embedded.private_mb * 1e6 < available_bytes() / 2]
    rates = {count: large.rate(count) for count in fitting}
    rows = [_row(large.name, "embedded", "", embedded, rates, counts, "")]
    slots = ("--slots", str(max(counts)), "--threads", str(threads))
    with running_engine(large.db, large.dsn, large.name, *slots, count=1) as engine:
        started = f"{processor_ms(engine.children()) / 1000:.2f}"
        served = large.first(engine.children())
        rates = {count: large.rate(count) for count in counts}
        private, shared = engine_mb(engine)
        rows.append(
            _row(large.name, "served", started, served, rates, counts, f"{private:.0f} + {shared:.0f}")
        )
        large.db.execute("select mindful.model_serve(%s, null)", (large.name,))
    return rows


def _row(
    name: str,
    side: str,
    started: str,
    first: First,
    rates: dict[int, float],
    counts: Sequence[int],
    engine: str,
) -> str:
    cells = [f"{rates[count]:.1f}" if count in rates else "(memory)" for count in counts]
    return (
        f"| {name} | {side} | {started} | {first.first} | {first.again} | {first.private_mb:.0f} "
        f"| {first.shared_mb:.0f} | {engine} | {' | '.join(cells)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", nargs="+", choices=SHAPES, default=["1B", "3B"])
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the engine")
    parser.add_argument(
        "--folder", help="where the files are made; the default is the system's temporary folder"
    )
    parser.add_argument("--write", type=Path, help="put the table into this file, between its markers")
    options = parser.parse_args()
    counts, dsn = options.connections, os.environ["MINDFUL_DSN"]
    lines = [
        "| model | engine | the engine's start, s of processor time | first token of a connection, s (processor time) "
        "| its second call | private MB a connection | shared MB | engine's MB, private + shared "
        f"| {' | '.join(f'tokens/s, {n} connections' for n in counts)} |",
        f"|---|---|---|---|---|---|---|---|{'---|' * len(counts)}",
    ]
    loads = []
    with psycopg.connect(dsn, autocommit=True) as db:
        tokenizer = model_files(db)["generator"]
        for size in options.sizes:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                Path(folder).chmod(0o755)
                file, name = Path(folder) / "model.gguf", f"random-{size.lower()}"
                write_random(file, SHAPES[size], tokenizer)
                db.execute(
                    "select mindful.model_register(%s, 'generator', 'llama_cpp', %s, %s)",
                    (
                        name,
                        str(file),
                        Jsonb({"context_length": options.context}),
                    ),
                )
                try:
                    large = Large(db, dsn, name, options.tokens)
                    lines += measured(large, counts, options.threads)
                finally:
                    db.execute("select mindful.model_unregister(%s)", (name,))
            loads.append(os.getloadavg()[0])
            print(lines[-2], lines[-1], sep="\n", flush=True)
    lines += [
        "",
        f"Q4_0, context {options.context}, {options.tokens} tokens an answer, {options.threads} threads of the engine, "
        f"{os.cpu_count()} processors, load {min(loads):.1f} to {max(loads):.1f}, one run.",
    ]
    print("\n".join(lines))
    if options.write:
        put(options.write, "large", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
