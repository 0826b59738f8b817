"""How much of a machine an engine takes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mindful_client.engine.gguf import facts

_MOST_SLOTS = 32
_SHARE = 4
"""Of the memory that is free, the part that keys and values may take."""
_BYTES = 2
"""Of a number of keys or values (f16)."""
_EMBEDDER_TOKENS = 4096


@dataclass(frozen=True)
class Size:
    """What an engine is started with."""

    slots: int
    context: int
    """Tokens of each slot."""
    threads: int
    gpu_layers: int
    cache_mib: int
    """Memory for prompts that no slot holds any more."""


def size_of(
    kind: str,
    file: str,
    context: int,
    slots: int | None = None,
    threads: int | None = None,
    gpu_layers: int = -1,
) -> Size:
    """Size an engine for a model file; given numbers stay. gpu_layers -1 puts all layers on a GPU, if there is one."""
    free = available_bytes()
    if slots is None:
        slots = 1
        if kind == "generator":
            fitting = free // _SHARE // (context * bytes_per_token(file))
            slots = max(1, min(_MOST_SLOTS, fitting))
        else:
            slots = max(1, _EMBEDDER_TOKENS // context)
    return Size(slots, context, threads or _threads(), gpu_layers, min(256, free // 32 >> 20))


def _threads() -> int:
    """All processors but one, which stays for the database; of two, an engine is worth both."""
    processors = len(os.sched_getaffinity(0))
    return min(processors, max(2, processors - 1))


def bytes_per_token(file: str) -> int:
    """Bytes of keys and values that a token of a GGUF file's model takes."""
    found = facts(file)
    name = found["general.architecture"]
    layers, heads = found[f"{name}.block_count"], found[f"{name}.attention.head_count"]
    width = found[f"{name}.embedding_length"] // heads
    key = found.get(f"{name}.attention.key_length", width)
    of_values = found.get(f"{name}.attention.value_length", width)
    shared = found.get(f"{name}.attention.head_count_kv", heads)
    total = sum(shared) if isinstance(shared, list) else shared * layers
    return int(total * (key + of_values) * _BYTES)


def available_bytes() -> int:
    """Memory that is available, as Linux tells it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 30
