"""Chat templates: conversation to tokens, with nobody's words read as control tokens."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NoReturn

from jinja2 import Template
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mindful.errors import CorruptedModelError, InvalidParameterError
from mindful.pattern import linear
from mindful.ports import Message
from mindful.providers.llama.library import llama
from mindful.providers.llama.weights import Weights

# PostgreSQL's text cannot hold NUL, so no content can look like a mark.
_MARK = linear("\0(\\d+)\0")


class ChatTemplate:
    """The template of a model's file, or the one given in its stead, applied with a mark in each content's place.

    Only the template's own text is tokenized with control tokens on, so a user who writes <|im_end|> has written
    just that.
    """

    def __init__(self, weights: Weights, source: str | None = None) -> None:
        self._weights = weights
        self._bos = self._token_text(llama.llama_vocab_bos(weights.vocabulary))
        self._eos = self._token_text(llama.llama_vocab_eos(weights.vocabulary))
        self._adds_bos = bool(llama.llama_vocab_get_add_bos(weights.vocabulary))
        self._template = _compile(weights.chat_template() if source is None else source)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Render messages, ready for the model's answer, as tokens.

        Messages of one role in a row become one, as many templates want user and assistant in turn; where a template
        knows no system role, the system's text opens the first user's message.
        """
        parts = _merged(messages)
        try:
            try:
                rendered = self._render(parts)
            except TemplateError:
                parts = _merged([Message("user" if m.role == "system" else m.role, m.content) for m in parts])
                rendered = self._render(parts)
        except TemplateError as error:
            raise InvalidParameterError(
                f"the model's chat template refuses this conversation: {error}",
                f"The roles were: {', '.join(message.role for message in messages)}.",
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
        except TypeError as error:  # what a template's own mistakes raise
            raise TemplateError(str(error)) from None

    def _token_text(self, token: int) -> str:
        if token < 0:
            return ""
        return str(llama.llama_vocab_get_text(self._weights.vocabulary, token).decode(errors="replace"))


def _compile(source: str | None) -> Template:
    # As transformers renders them; in a sandbox, because the template comes with a file that somebody made.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    try:
        return environment.from_string(source or _PLAIN)
    except TemplateError as error:
        raise CorruptedModelError(
            f"the model's chat template is broken: {error}",
            "Use a file with a template that Jinja reads, or give one as the option template.",
        ) from None


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Join messages of one role in a row, and leave out empty ones of the system."""
    merged: list[Message] = []
    for message in messages:
        if message.role == "system" and not message.content:
            continue
        if merged and merged[-1].role == message.role:
            message = Message(message.role, f"{merged.pop().content}\n\n{message.content}")
        merged.append(message)
    return merged


_PLAIN = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
"""For a base model, whose file carries no template."""


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
