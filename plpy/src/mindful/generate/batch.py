"""Many prompts in shared batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mindful.core.entry import sql_function
from mindful.core.errors import InvalidParameterError, MindfulError
from mindful.core.ports import Database
from mindful.generate import cache as cached
from mindful.generate.call import Arguments, Call, call_of, seed_of


@sql_function
def llm_generate_many(
    db: Database, prompts: Sequence[str | None] | None, *arguments: Any
) -> list[str | None] | None:
    """Answer prompts in shared batches. NULL gives NULL."""
    if prompts is None:
        return None
    return answer_texts(db, "prompt", prompts, call_of_prompt(db, Arguments(*arguments)))


def call_of_prompt(db: Database, given: Arguments) -> Callable[[int, str], Call]:
    """Return a function that makes the call of the n-th prompt, with a seed of its own."""
    return lambda at, prompt: call_of(db, prompt, given._replace(seed=seed_of(given.seed, at)))


def answer_texts(
    db: Database, name: str, texts: Sequence[str | None], call_of_text: Callable[[int, str], Call]
) -> list[str | None]:
    """Answer the calls made of texts in shared batches. NULL gives NULL. Errors have the position of the text."""
    calls: dict[int, Call] = {}
    for at, text in enumerate(texts):
        if text is None:
            continue
        if not isinstance(text, str):
            raise InvalidParameterError(
                f"{name}s has more than one dimension", "Pass a one-dimensional array of texts."
            )
        with _about(name, at):
            calls[at] = call_of_text(at, text)
    answers: dict[int, str] = {}
    for at, answer in zip(calls, cached.answers(db, list(calls.values())), strict=True):
        with _about(name, at):
            answers[at] = calls[at].checked(answer)
    return [answers.get(at) for at in range(len(texts))]


@contextmanager
def _about(name: str, at: int) -> Iterator[None]:
    try:
        yield
    except MindfulError as error:
        raise error.about(f"{name} {at + 1}") from None
