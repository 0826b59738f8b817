"""Chat templates turn conversations into tokens. Control tokens in messages are plain text."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NoReturn

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mindful.core.errors import CorruptedModelError, InvalidParameterError
from mindful.core.pattern import linear
from mindful.core.ports import Message
from mindful.models.providers.llama.library import llama
from mindful.models.providers.llama.weights import Weights
from mindful.models.providers.turns import as_user, merged

# PostgreSQL cannot store NUL, so no content can look like a mark.
_MARK = linear("\0(\\d+)\0")


class ChatTemplate:
    """The chat template of a model's file or option. It is rendered with a mark in place of each content.

    Only the template's own text is tokenized with control tokens enabled. <|im_end|> in a message is plain text.
    """

    def __init__(self, weights: Weights, source: str | None = None) -> None:
        self._weights = weights
        self._bos = self._token_text(llama.llama_vocab_bos(weights.vocabulary))
        self._eos = self._token_text(llama.llama_vocab_eos(weights.vocabulary))
        self._adds_bos = bool(llama.llama_vocab_get_add_bos(weights.vocabulary))
        self._template = _compile(weights.chat_template() if source is None else source)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Render messages up to the start of the answer, as tokens.

        Consecutive messages of one role are joined, because many templates require user and assistant in turn. If a
        template has no system role, the system message becomes the beginning of the first user message.
        """
        parts = merged(messages)
        try:
            try:
                rendered = self._render(parts)
            except TemplateError:
                parts = merged(as_user(parts))
                rendered = self._render(parts)
        except TemplateError as error:
            raise InvalidParameterError(
                f"the model's chat template refuses this conversation: {error}",
                "Register the model with another option template. "
                f"The roles are: {', '.join(message.role for message in messages)}.",
            ) from None
        tokens: list[int] = []
        for at, part in enumerate(_MARK.split(rendered)):
            if at % 2:
                tokens += self._weights.tokenize(parts[int(part)].content)
            elif part:
                tokens += self._weights.tokenize_template(part)
        if self._adds_bos and self._bos and not rendered.startswith(self._bos):
            tokens.insert(0, llama.llama_vocab_bos(self._weights.vocabulary))
        return tokens

    def _render(self, messages: Sequence[Message]) -> str:
        try:
            return self._template.render(
                messages=[
                    {"role": message.role, "content": f"\0{at}\0"} for at, message in enumerate(messages)
                ],
                add_generation_prompt=True,
                bos_token=self._bos,
                eos_token=self._eos,
                tools=None,
                documents=None,
                raise_exception=_refuse,
                strftime_now=lambda form: datetime.datetime.now().strftime(form),
            )
        except TypeError as error:  # mistakes of the template
            raise TemplateError(str(error)) from None

    def _token_text(self, token: int) -> str:
        if token < 0:
            return ""
        return str(llama.llama_vocab_get_text(self._weights.vocabulary, token).decode(errors="replace"))


def _compile(source: str | None) -> Template:
    # The options of transformers. The sandbox is needed because the template comes from a file of unknown origin.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    try:
        return environment.from_string(source or _PLAIN)
    except TemplateError as error:
        raise CorruptedModelError(
            f"the model's chat template is broken: {error}",
            "Use a file with a valid Jinja template, or pass one as the option template.",
        ) from None


_PLAIN = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
"""For base models, whose files have no template."""


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
