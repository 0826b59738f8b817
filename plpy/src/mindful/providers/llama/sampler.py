"""How the next token is chosen from the logits, freely or within a grammar."""

from __future__ import annotations

import ctypes
import time
from types import TracebackType
from typing import Any

from mindful.errors import DataError, InvalidParameterError
from mindful.ports import Sampling
from mindful.providers.llama.library import last_error, llama, np
from mindful.providers.llama.weights import Weights

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""llama_token_data."""
_LONGEST_CHOICE_S = 3.0
"""The longest enumeration that a schema may have takes two."""


class Sampler:
    """llama.cpp's sampler chain: greedy at temperature 0, else its usual top-k, top-p and min-p.

    Used as a context, as it holds memory. Within a grammar the chain's own choice is tried first; only when the grammar
    refuses it are all candidates put to it, which takes far longer.
    """

    def __init__(self, weights: Weights, sampling: Sampling) -> None:
        self._vocabulary_size = weights.vocabulary_size
        self._grammar = _grammar(weights, sampling.grammar) if sampling.grammar else None
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
        if self._grammar is None:
            return token
        started = time.perf_counter()
        if not self._allowed(token):
            token = self._choose_allowed(logits)
        llama.llama_sampler_accept(self._grammar, token)
        # An ambiguous grammar can take longer from token to token, and llama.cpp cannot be interrupted here.
        if time.perf_counter() - started > _LONGEST_CHOICE_S:
            raise InvalidParameterError(
                "the grammar has too many ways to read what was made so far",
                "Let alternatives of a rule that refers to itself begin with other characters.",
            )
        return token

    def close(self) -> None:
        """Give the memory back."""
        llama.llama_sampler_free(self._chain)
        if self._grammar is not None:
            llama.llama_sampler_free(self._grammar)

    def __enter__(self) -> Sampler:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _allowed(self, token: int) -> bool:
        candidates = np.array([(token, 1.0, 0.0)], dtype=_CANDIDATE)
        llama.llama_sampler_apply(self._grammar, ctypes.byref(_array(candidates)))
        return bool(candidates["logit"][0] != -np.inf)

    def _choose_allowed(self, logits: Any) -> int:
        candidates = np.zeros(self._vocabulary_size, dtype=_CANDIDATE)
        candidates["id"] = np.arange(self._vocabulary_size)
        candidates["logit"] = logits
        array = _array(candidates)
        llama.llama_sampler_apply(self._grammar, ctypes.byref(array))
        # One that cannot be chosen must not be accepted either: llama.cpp would end the process.
        if np.all(candidates["logit"] == -np.inf):
            raise DataError(
                "no token of the model continues what the grammar asks for",
                "Simplify the json_schema or grammar.",
            )
        llama.llama_sampler_apply(self._chain, ctypes.byref(array))
        return int(array.data[array.selected].id)


def _array(candidates: Any) -> Any:
    data = candidates.ctypes.data_as(ctypes.POINTER(llama.llama_token_data))
    return llama.llama_token_data_array(data, len(candidates), -1, False)


def _grammar(weights: Weights, text: str) -> Any:
    grammar = llama.llama_sampler_init_grammar(weights.vocabulary, text.encode(), b"root")
    if not grammar:
        raise InvalidParameterError(
            f"llama.cpp cannot read the grammar: {last_error()}",
            "It must be GBNF with a rule root; no rule, nor reference in json_schema, may begin with itself.",
        )
    return grammar
