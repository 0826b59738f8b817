"""How the next token is chosen from the logits, freely or within a grammar."""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any

from mindful.ports import Interrupts, Sampling
from mindful.providers.llama.library import llama, np
from mindful.providers.llama.weights import Weights

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""llama_token_data."""


class Sampler:
    """llama.cpp's sampler chain: greedy at temperature 0, else its usual top-k, top-p and min-p.

    Used as a context, as it holds memory. Within a grammar the chain's own choice is tried first; only when the grammar
    refuses it is the grammar asked for all that it allows, which takes longer.
    """

    def __init__(self, weights: Weights, sampling: Sampling, interrupts: Interrupts) -> None:
        self._vocabulary_size = weights.vocabulary_size
        self._guide = weights.guides.guide(sampling.grammar, interrupts) if sampling.grammar else None
        self._chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
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
            llama.llama_sampler_chain_add(self._chain, part)

    def choose(self, context: ctypes.c_void_p, at: int, logits: Any) -> int:
        """Choose a token by the logits of a batch's entry `at`, -1 being its last."""
        token: int = llama.llama_sampler_sample(self._chain, context, at)
        if self._guide is None or self._guide.accept(token):
            return token
        token = self._choose_among(self._guide.allowed(), logits)
        self._guide.accept(token)
        return token

    def close(self) -> None:
        """Give the memory back."""
        llama.llama_sampler_free(self._chain)

    def __enter__(self) -> Sampler:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _choose_among(self, allowed: Any, logits: Any) -> int:
        candidates = np.zeros(int(allowed.sum()), dtype=_CANDIDATE)
        candidates["id"] = np.flatnonzero(allowed)
        candidates["logit"] = logits[allowed]
        data = candidates.ctypes.data_as(ctypes.POINTER(llama.llama_token_data))
        array = llama.llama_token_data_array(data, len(candidates), -1, False)
        llama.llama_sampler_apply(self._chain, ctypes.byref(array))
        return int(array.data[array.selected].id)
