"""Chat templates: Jinja that turns a conversation into a prompt."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import NoReturn

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mindful.core.errors import CorruptedModelError, InvalidParameterError
from mindful.core.pattern import linear
from mindful.core.ports import Message
from mindful.models.providers.turns import as_user, merged

# PostgreSQL cannot store NUL, so no content can look like a mark.
_MARK = linear("\0(\\d+)\0")
_PLAIN = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
"""For base models, whose files have no template."""

_MISTAKES = (TypeError, ValueError, ArithmeticError, LookupError, RecursionError)
"""What a template raises by its own mistakes, such as {{ 1 / 0 }}."""


class Template:
    """A chat template. It is rendered with a mark in place of each content, so that its own text is told apart."""

    def __init__(self, source: str | None, bos: str, eos: str) -> None:
        self.source = source or _PLAIN
        self._bos, self._eos = bos, eos
        # The options of transformers. The sandbox is needed because the template comes from a file of unknown origin.
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        try:
            self._template = environment.from_string(self.source)
        except TemplateError as error:
            raise CorruptedModelError(
                f"the model's chat template is broken: {error}",
                "Use a file with a valid Jinja template, or pass one as the option template.",
            ) from None

    def encode(
        self,
        messages: Sequence[Message],
        own: Callable[[str, bool], Sequence[int]],
        content: Callable[[str], Sequence[int]],
    ) -> list[int]:
        """Render messages up to the start of the answer, as tokens.

        Consecutive messages of one role are joined, because many templates require user and assistant in turn. If a
        template has no system role, the system message becomes the beginning of the first user message. `own` tokenizes
        the template's own text, and is told whether it opens the prompt without the token of a beginning. `content`
        tokenizes messages.
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
        first, *rest = _MARK.split(rendered)
        tokens = [*own(first, not (self._bos and rendered.startswith(self._bos)))]
        for at, part in enumerate(rest):
            tokens += own(part, False) if at % 2 else content(parts[int(part)].content)
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
        except _MISTAKES as error:
            raise TemplateError(str(error)) from None


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
