"""Many prompts answered side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mindful.call import Call, call_of
from mindful.entry import sql_function
from mindful.errors import InvalidParameterError, MindfulError
from mindful.ports import Database

_SEEDS = 1 << 31


@sql_function
def llm_generate_many(
    db: Database,
    prompts: Sequence[str | None] | None,
    model: str | None,
    max_tokens: int | None,
    temperature: float | None,
    seed: int | None,
    system_prompt: str | None,
    stop: Sequence[str] | None,
    truncate: bool | None,
    json_schema: str | None,
    grammar: str | None,
) -> list[str | None] | None:
    """Answer prompts in one batch; NULL for NULL."""
    if prompts is None:
        return None

    def call(at: int, prompt: str) -> Call:
        own = None if seed is None else (seed + at) % _SEEDS if seed >= 0 else seed
        return call_of(
            db,
            prompt,
            model,
            max_tokens,
            temperature,
            own,
            system_prompt,
            stop,
            truncate,
            json_schema,
            grammar,
        )

    return answer_texts(db, "prompt", prompts, call)


def answer_texts(
    db: Database, name: str, texts: Sequence[str | None], call_of_text: Callable[[int, str], Call]
) -> list[str | None]:
    """Answer the calls that texts make, side by side; NULL for NULL. An error says which text it is about."""
    calls: dict[int, Call] = {}
    for at, text in enumerate(texts):
        if text is None:
            continue
        if not isinstance(text, str):
            raise InvalidParameterError(
                f"{name}s has more than one dimension", "Give a one-dimensional array of texts."
            )
        with _about(name, at):
            calls[at] = call_of_text(at, text)
    answers: dict[int, str] = {}
    for at, answer in zip(calls, Call.answer_many(db, list(calls.values())), strict=True):
        with _about(name, at):
            answers[at] = calls[at].checked(answer)
    return [answers.get(at) for at in range(len(texts))]


@contextmanager
def _about(name: str, at: int) -> Iterator[None]:
    try:
        yield
    except MindfulError as error:
        raise type(error)(f"{name} {at + 1}: {error}", error.hint) from None
