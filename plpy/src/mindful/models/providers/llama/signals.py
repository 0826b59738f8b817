"""Confidence signals of each token, computed from the raw logits during generation."""

from __future__ import annotations

import time
from typing import Any

from mindful.core.ports import Completion
from mindful.models.providers.llama.arrays import np

_LEAST = -1e4
"""Replaces masked logits of minus infinity: 0 times infinity is not a number."""


class SignalReader:
    """Computes per-token signals in two reused buffers (about 0.2 ms for 49,152 logits)."""

    def __init__(self, vocabulary_size: int) -> None:
        self._shifted = np.empty(vocabulary_size, dtype=np.float32)
        self._weights = np.empty(vocabulary_size, dtype=np.float32)

    def read(
        self, logits: Any, token: int, completion: Completion, likeliest: int = 0
    ) -> list[tuple[int, float]]:
        """Append the log-probability, entropy and margin of a sampled token's distribution.

        Returns the `likeliest` tokens with their log-probabilities, the likeliest first.

        With shifted logits s = z - max z and Z = sum exp s: log p(t) = s_t - ln Z, H = ln Z - sum(exp(s) s) / Z,
        and the margin p_1 - p_2 = (1 - exp s_2) / Z.
        """
        started = time.perf_counter()
        best = int(logits.argmax())
        np.subtract(logits, logits[best], out=self._shifted)
        np.maximum(self._shifted, _LEAST, out=self._shifted)
        np.exp(self._shifted, out=self._weights)
        total = float(self._weights.sum())
        log_total = float(np.log(total))
        completion.logprobs.append(float(self._shifted[token]) - log_total)
        found = np.argpartition(-self._shifted, likeliest)[:likeliest] if likeliest else ()
        best_first = sorted(
            ((int(at), float(self._shifted[at]) - log_total) for at in found), key=lambda one: -one[1]
        )
        completion.entropies.append(log_total - float(self._weights @ self._shifted) / total)
        self._weights[best] = 0.0
        completion.margins.append((1.0 - float(self._weights.max())) / total)
        completion.signal_ms += (time.perf_counter() - started) * 1000
        return best_first
