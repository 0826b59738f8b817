"""llama.cpp's sampler chains: how the next token is chosen from the logits."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

from mindful.ports import Sampling
from mindful.providers.llama.library import llama


@contextlib.contextmanager
def sampler(sampling: Sampling) -> Iterator[ctypes.c_void_p]:
    """Build llama.cpp's sampler chain: greedy at temperature 0, else its usual top-k, top-p and min-p."""
    chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
    if sampling.temperature == 0:
        parts = [llama.llama_sampler_init_greedy()]
    else:
        seed = llama.LLAMA_DEFAULT_SEED if sampling.seed is None else sampling.seed
        parts = [
            llama.llama_sampler_init_top_k(40),
            llama.llama_sampler_init_top_p(0.95, 1),
            llama.llama_sampler_init_min_p(0.05, 1),
            llama.llama_sampler_init_temp(sampling.temperature),
            llama.llama_sampler_init_dist(seed),
        ]
    for part in parts:
        llama.llama_sampler_chain_add(chain, part)
    try:
        yield chain
    finally:
        llama.llama_sampler_free(chain)
