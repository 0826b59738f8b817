"""Embeddings by llama.cpp, many texts per micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

from mindful.core.errors import CorruptedModelError
from mindful.core.ports import Interrupts, Vector
from mindful.core.text import strip_accents
from mindful.core.vector import unit
from mindful.models.providers.llama.library import llama
from mindful.models.providers.llama.weights import Weights
from mindful.models.providers.packing import groups

_MICRO_BATCH = 256
"""Tokens evaluated at once. Larger micro-batches are slower: attention computes masked pairs of texts too."""
_SEQUENCES = 64
_CHARACTERS = 64
"""Characters per token to read when accents are stripped, so that the end of a huge text is not read."""


class LlamaEmbedder:
    """An embedder. It cuts texts that are longer than its context."""

    served = False

    def __init__(self, weights: Weights, context_length: int, threads: int) -> None:
        self.dims: int = llama.llama_model_n_embd_out(weights.model)
        self._weights = weights
        self.strips_accents = weights.metadata("mindful.strip_accents") == "true"
        self.context_length = context_length
        self._capacity = max(_MICRO_BATCH, context_length)
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = self._capacity
        params.n_seq_max = _SEQUENCES
        params.kv_unified = True
        params.n_threads = params.n_threads_batch = threads
        params.embeddings = True
        params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.no_perf = True
        self._context = weights.context(params)
        if not self._context:
            raise CorruptedModelError("llama.cpp cannot make a context for this embedder")
        self._batch = llama.llama_batch_init(self._capacity, 0, 1)

    def count(self, text: str) -> int:
        """Count the tokens of a text, without special tokens."""
        return len(self._weights.tokenize(text))

    def embed(self, texts: Sequence[str], interrupts: Interrupts) -> list[Vector]:
        """Embed texts as unit vectors."""
        callback = llama.ggml_abort_callback(lambda _data: interrupts.pending())
        llama.llama_set_abort_callback(self._context, callback, None)
        tokens = []
        for text in texts:
            interrupts.check()
            tokens.append(self._tokens(text))
        vectors: list[Vector] = [()] * len(texts)
        for group in groups([len(row) for row in tokens], self._capacity, _SEQUENCES):
            interrupts.check()
            for at, vector in zip(group, self._run([tokens[at] for at in group], interrupts), strict=True):
                vectors[at] = vector
        return vectors

    def close(self) -> None:
        """Free the memory."""
        llama.llama_batch_free(self._batch)
        llama.llama_free(self._context)
        self._weights.close()

    def _tokens(self, text: str) -> list[int]:
        if self.strips_accents:
            text = strip_accents(text[: self.context_length * _CHARACTERS])
        return self._weights.tokenize(text, surround=True, most=self.context_length - self._weights.around)

    def _run(self, rows: Sequence[Sequence[int]], interrupts: Interrupts) -> list[Vector]:
        batch, at = self._batch, 0
        for sequence, row in enumerate(rows):
            for position, token in enumerate(row):
                batch.token[at] = token
                batch.pos[at] = position
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = sequence
                batch.logits[at] = True
                at += 1
        batch.n_tokens = at
        if memory := llama.llama_get_memory(self._context):
            llama.llama_memory_clear(memory, False)
        if status := llama.llama_decode(self._context, batch):
            interrupts.check()
            raise CorruptedModelError(f"llama.cpp failed to embed {len(rows)} texts: status {status}")
        return [self._vector(sequence) for sequence in range(len(rows))]

    def _vector(self, sequence: int) -> Vector:
        pointer = llama.llama_get_embeddings_seq(self._context, sequence)
        if not pointer:
            raise CorruptedModelError("llama.cpp computed no embedding")
        try:
            return unit(pointer[: self.dims])
        except ValueError as error:
            raise CorruptedModelError(f"llama.cpp computed no embedding: {error}") from None
