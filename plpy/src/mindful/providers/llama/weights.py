"""A GGUF file: its mmapped weights, its vocabulary, its metadata."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any

from mindful.errors import CorruptedModelError, UndefinedFileError
from mindful.ports import Interrupts
from mindful.providers.llama.adapter import Adapter
from mindful.providers.llama.library import last_error, llama
from mindful.providers.options import file_stamp, gguf_file
from mindful.text import pieces

if TYPE_CHECKING:
    from mindful.providers.guide import Guides


class Weights:
    """A model file mapped into memory, where all backends share one copy of it."""

    def __init__(
        self, source: str, adapter: Adapter | None = None, interrupts: Interrupts | None = None
    ) -> None:
        if not gguf_file(source):
            raise UndefinedFileError(
                f'there is no GGUF file "{source}" that the server can read',
                "The path must be absolute, and the file readable by the operating system user of the server.",
            )
        params = llama.llama_model_default_params()
        params.use_mmap, params.use_mlock, params.n_gpu_layers = True, False, 0
        self.model = llama.llama_model_load_from_file(source.encode(), params)
        if not self.model:
            raise CorruptedModelError(
                f'the model file "{source}" cannot be loaded: {last_error()}',
                "The file may be truncated or of a format that this llama.cpp does not know; copy it again.",
            )
        self.stamp = file_stamp(source)
        self._adapter = adapter
        if adapter is not None:
            self.stamp += f", adapter {file_stamp(adapter.source)} {adapter.scale}"
            self._lora = adapter.load(self.model)
        self.vocabulary = llama.llama_model_get_vocab(self.model)
        self.vocabulary_size: int = llama.llama_vocab_n_tokens(self.vocabulary)
        self.trained_context: int = llama.llama_model_n_ctx_train(self.model)
        self._piece = ctypes.create_string_buffer(512)
        self._interrupts = interrupts

    @functools.cached_property
    def guides(self) -> Guides:
        """What holds answers to grammars."""
        from mindful.providers.guide import Guides

        return Guides(self)

    def context(self, params: Any) -> Any:
        """Make a context for the model, with its adapter; none where llama.cpp cannot."""
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
        """Turn a user's text into tokens, none of which is a control token.

        llama.cpp hears no cancel, so a long text is given to it in pieces, cut before blanks, which no token spans.

        Args:
            text: what to tokenize.
            surround: add the tokens that the model wants at the beginning and the end.
            most: stop when there are so many, those around them not counted.
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
        """Turn a chat template's own text into tokens, control tokens such as <|im_end|> included."""
        return self._tokenize(text, special=True)

    def tokenize_apart(self, text: str) -> list[int]:
        """Turn text into tokens in another thread, where nothing can look for a cancel."""
        return self._tokenize(text)

    @property
    def around(self) -> int:
        """How many tokens the model wants around a text."""
        return sum(map(len, self._around))

    @functools.cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        inner, outer = self._tokenize("a"), self._tokenize("a", surround=True)
        at = next(at for at in range(len(outer)) if outer[at : at + len(inner)] == inner)
        return outer[:at], outer[at + len(inner) :]

    @functools.cached_property
    def _adds_blank(self) -> bool:
        """Whether the tokenizer puts a blank before every text that it is given."""
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
        """Return a token's bytes; control tokens have none."""
        length = llama.llama_token_to_piece(self.vocabulary, token, self._piece, len(self._piece), 0, False)
        return bytes(self._piece.raw[: max(length, 0)])

    def ends(self, token: int) -> bool:
        """Tell whether a token ends the model's answer."""
        return bool(llama.llama_vocab_is_eog(self.vocabulary, token))

    def close(self) -> None:
        """Unmap the file; an adapter goes with it."""
        if "guides" in vars(self):
            self.guides.close()
        llama.llama_model_free(self.model)
