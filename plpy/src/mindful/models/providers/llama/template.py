"""Chat templates turn conversations into tokens. Control tokens in messages are plain text."""

from __future__ import annotations

from collections.abc import Sequence

from mindful.core.ports import Message
from mindful.models.providers.llama.library import llama
from mindful.models.providers.llama.weights import Weights
from mindful.models.providers.template import Template


class ChatTemplate:
    """The chat template of a model's file or option.

    Only the template's own text is tokenized with control tokens enabled. <|im_end|> in a message is plain text.
    """

    def __init__(self, weights: Weights, source: str | None = None) -> None:
        self._weights = weights
        bos = self._token_text(llama.llama_vocab_bos(weights.vocabulary))
        eos = self._token_text(llama.llama_vocab_eos(weights.vocabulary))
        self._adds_bos = bool(bos and llama.llama_vocab_get_add_bos(weights.vocabulary))
        self._template = Template(weights.chat_template() if source is None else source, bos, eos)

    @property
    def source(self) -> str:
        """The template's text."""
        return self._template.source

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Render messages up to the start of the answer, as tokens."""
        return self._template.encode(messages, self._own, self._weights.tokenize)

    def _own(self, text: str, opens: bool) -> list[int]:
        tokens = self._weights.tokenize_template(text) if text else []
        if opens and self._adds_bos:
            tokens.insert(0, llama.llama_vocab_bos(self._weights.vocabulary))
        return tokens

    def _token_text(self, token: int) -> str:
        if token < 0:
            return ""
        return str(llama.llama_vocab_get_text(self._weights.vocabulary, token).decode(errors="replace"))
