"""A GGUF file: its memory-mapped weights, its vocabulary and its metadata."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mindful.core.apart import apart
from mindful.core.errors import CorruptedModelError, UndefinedFileError
from mindful.core.ports import Interrupts, Piece
from mindful.core.text import pieces
from mindful.models.providers.llama.adapter import Adapter
from mindful.models.providers.llama.library import last_error, llama
from mindful.models.providers.options import file_stamp, gguf_file

if TYPE_CHECKING:
    from mindful.models.providers.guide import Guides


class Weights:
    """A model file mapped into memory. All backends share one copy."""

    def __init__(
        self,
        source: str,
        adapter: Adapter | None = None,
        interrupts: Interrupts | None = None,
        repack: bool = False,
    ) -> None:
        if not gguf_file(source):
            raise UndefinedFileError(
                f'there is no GGUF file "{source}" that the server can read',
                "Pass the absolute path of a file that the server's operating system user can read.",
            )
        self.model = _load(source, repack, interrupts)
        if not self.model:
            raise CorruptedModelError(
                f'the model file "{source}" cannot be loaded: {last_error()}',
                "The file may be truncated, or too new for this version of llama.cpp. Copy it again.",
            )
        self.stamp = file_stamp(source)
        self._adapter = adapter
        if adapter is not None:
            self.stamp += f", adapter {file_stamp(adapter.source)} {adapter.scale}"
            try:
                self._lora = adapter.load(self.model, interrupts)
            except BaseException:
                llama.llama_model_free(self.model)
                raise
        self.vocabulary = llama.llama_model_get_vocab(self.model)
        self.vocabulary_size: int = llama.llama_vocab_n_tokens(self.vocabulary)
        self.trained_context: int = llama.llama_model_n_ctx_train(self.model)
        self._piece = ctypes.create_string_buffer(512)
        self._interrupts = interrupts

    @functools.cached_property
    def guides(self) -> Guides:
        """Grammars for this vocabulary."""
        from mindful.models.providers.guide import Guides

        return Guides(self)

    def context(self, params: Any) -> Any:
        """Create a context for the model with its adapter. The result is a null pointer if llama.cpp fails."""
        context = llama.llama_init_from_model(self.model, params)
        if context and self._adapter is not None:
            adapters = (llama.llama_adapter_lora_p_ctypes * 1)(self._lora)
            llama.llama_set_adapters_lora(context, adapters, 1, (ctypes.c_float * 1)(self._adapter.scale))
        return context

    def metadata(self, key: str) -> str | None:
        """Return a value of the file's metadata as text."""
        buffer = ctypes.create_string_buffer(1 << 16)
        length = llama.llama_model_meta_val_str(self.model, key.encode(), buffer, len(buffer))
        return None if length < 0 else buffer.value.decode(errors="replace")

    def chat_template(self) -> str | None:
        """Return the Jinja template that renders a conversation for this model."""
        template = llama.llama_model_chat_template(self.model, None)
        return template.decode() if template else None

    def tokenize(self, text: str, *, surround: bool = False, most: int | None = None) -> list[int]:
        """Return the tokens of a user's text, without control tokens.

        llama.cpp cannot be interrupted, so a long text is passed in pieces. They are cut before spaces, because no
        token has a space inside.

        Args:
            text: the text to tokenize.
            surround: add the tokens that the model needs at the beginning and the end.
            most: largest number of tokens, without those that surround adds.
        """
        tokens: list[int] = []
        for at, piece in enumerate(pieces(text)):
            if self._interrupts is not None:
                self._interrupts.check()
            tokens += self._tokenize(piece[1:] if at and self._adds_blank and piece[0] == " " else piece)
            if most is not None and len(tokens) >= most:
                del tokens[most:]
                break
        if surround:
            before, after = self._around
            tokens = [*before, *tokens, *after]
        return tokens

    def tokenize_template(self, text: str) -> list[int]:
        """Return the tokens of a chat template's own text, control tokens such as <|im_end|> included."""
        return self._tokenize(text, special=True)

    def tokenize_apart(self, text: str) -> list[int]:
        """Return the tokens of a text without checks for interrupts, for other threads than the main one."""
        return self._tokenize(text)

    @property
    def around(self) -> int:
        """The number of tokens that the model needs around a text."""
        return sum(map(len, self._around))

    @property
    def before(self) -> list[int]:
        """The tokens that the model wants before a text."""
        return self._around[0]

    @functools.cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        inner, outer = self._tokenize("a"), self._tokenize("a", surround=True)
        at = next(at for at in range(len(outer)) if outer[at : at + len(inner)] == inner)
        return outer[:at], outer[at + len(inner) :]

    @functools.cached_property
    def _adds_blank(self) -> bool:
        """Whether the tokenizer adds a space before every text."""
        kinds = (llama.LLAMA_VOCAB_TYPE_SPM, llama.LLAMA_VOCAB_TYPE_UGM)
        added = self.metadata("tokenizer.ggml.add_space_prefix") != "false"
        return llama.llama_vocab_type(self.vocabulary) in kinds and added

    def _tokenize(self, text: str, *, special: bool = False, surround: bool = False) -> list[int]:
        data = text.encode("utf-8", errors="replace")
        size = len(data) + 2
        while True:
            tokens = (llama.llama_token * size)()
            count = llama.llama_tokenize(self.vocabulary, data, len(data), tokens, size, surround, special)
            if count >= 0:
                return list(tokens[:count])
            size = -count

    def piece(self, token: int) -> bytes:
        """Return a token's bytes, which are empty for control tokens."""
        length = llama.llama_token_to_piece(self.vocabulary, token, self._piece, len(self._piece), 0, False)
        return bytes(self._piece.raw[: max(length, 0)])

    def name(self, token: int) -> bytes:
        """Return a token's bytes, of a control token what the vocabulary calls it."""
        return self.piece(token) or bytes(llama.llama_vocab_get_text(self.vocabulary, token))

    def shown(self, token: int, logprob: float, likeliest: Sequence[tuple[int, float]]) -> Piece:
        """Return a token as an answer records it, with the likeliest at its place."""
        return Piece(
            self.piece(token), logprob, tuple((self.name(other), value) for other, value in likeliest)
        )

    def ends(self, token: int) -> bool:
        """Return whether a token ends the model's answer."""
        return bool(llama.llama_vocab_is_eog(self.vocabulary, token))

    def close(self) -> None:
        """Unmap the file and free the adapter."""
        if "guides" in vars(self):
            self.guides.close()
        llama.llama_model_free(self.model)


def _load(source: str, repack: bool, interrupts: Interrupts | None) -> Any:
    """Load a file. A cancel waits until llama.cpp has read the vocabulary, which reports no progress: 0.1 to 1.4 s."""
    params = llama.llama_model_default_params()
    params.use_extra_bufts = repack
    params.load_mode, params.n_gpu_layers = llama.LLAMA_LOAD_MODE_MMAP, 0

    def work(stopped: threading.Event) -> Any:
        params.progress_callback = llama.llama_progress_callback(lambda _share, _data: not stopped.is_set())
        return llama.llama_model_load_from_file(source.encode(), params)

    if interrupts is None:
        return work(threading.Event())
    model = apart(work, interrupts)
    try:
        interrupts.check()
    except BaseException:
        llama.llama_model_free(model)
        raise
    return model
