"""Many prompts answered side by side."""

from __future__ import annotations

from collections.abc import Sequence

from mindful.entry import sql_function
from mindful.errors import MindfulError
from mindful.llm import Call, call_of
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
) -> list[str | None] | None:
    """Answer prompts in one batch; NULL for NULL."""
    if prompts is None:
        return None
    calls: list[Call] = []
    for at, prompt in enumerate(prompts):
        if prompt is None:
            continue
        own = None if seed is None else (seed + at) % _SEEDS if seed >= 0 else seed
        try:
            calls.append(
                call_of(db, prompt, model, max_tokens, temperature, own, system_prompt, stop, truncate)
            )
        except MindfulError as error:
            raise type(error)(f"prompt {at + 1}: {error}", error.hint) from None
    texts = iter(Call.run_many(db, calls))
    return [None if prompt is None else next(texts) for prompt in prompts]
