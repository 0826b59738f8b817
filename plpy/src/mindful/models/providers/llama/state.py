"""Keys and values of a part of a sequence as bytes. Only the same build of llama.cpp can read them."""

from __future__ import annotations

import ctypes
from typing import Any

from mindful.models.providers.llama.library import llama
from mindful.models.providers.llama.weights import Weights
from mindful.models.providers.options import file_stamp

SEQUENCES = 2
"""The sequence of the conversation, and a second one for a part of it while the part is written or read."""
_WHOLE, _PART = range(SEQUENCES)


def format_of(weights: Weights, context_length: int, flash: bool) -> str | None:
    """Return an identifier of all that a state depends on beside the tokens, None for models without partial states.

    The stamp of the library's file identifies llama.cpp's build. The stamp of the model's file changes when the weights
    are replaced.
    """
    model = weights.model
    if (
        llama.llama_model_is_recurrent(model)
        or llama.llama_model_is_hybrid(model)
        or llama.llama_model_n_swa(model)
    ):
        return None
    library = file_stamp(llama._lib._name)
    attention = "flash attention" if flash else "attention"
    return f"llama.cpp {library}, file {weights.stamp}, context {context_length}, {attention}, keys and values f16"


def take(context: Any, first: int, last: int) -> bytes:
    """Write the state of the conversation's tokens at first <= position < last (about 1 ms per megabyte)."""
    memory = llama.llama_get_memory(context)
    # In one cache this only marks the cells as belonging to both sequences, without a copy.
    llama.llama_memory_seq_cp(memory, _WHOLE, _PART, first, last)
    try:
        size: int = llama.llama_state_seq_get_size(context, _PART)
        buffer = (ctypes.c_uint8 * size)()
        written: int = llama.llama_state_seq_get_data(context, buffer, size, _PART)
    finally:
        llama.llama_memory_seq_rm(memory, _PART, -1, -1)
    return ctypes.string_at(buffer, written)


def give(context: Any, state: bytes) -> bool:
    """Append a state that `take` wrote to the conversation, and return whether llama.cpp accepted it.

    llama.cpp trusts the lengths in the state, so other bytes can crash the process.
    """
    memory = llama.llama_get_memory(context)
    buffer = ctypes.cast(ctypes.c_char_p(state), ctypes.POINTER(ctypes.c_uint8))
    taken: bool = llama.llama_state_seq_set_data(context, buffer, len(state), _PART) == len(state) > 0
    if taken:
        llama.llama_memory_seq_cp(memory, _PART, _WHOLE, -1, -1)
    llama.llama_memory_seq_rm(memory, _PART, -1, -1)
    return taken
