"""Replay: training samples made of facts, their export, and the adapters trained on them."""

from __future__ import annotations

from typing import Any

from mindful_client.calls.statement import DEFAULT, Call, Json, nothing, row, rows, scalar, scalars
from mindful_client.types import ReplayDetail, TrainedAdapter


def replay_run(model: str, *, filter: Json = DEFAULT) -> Call[ReplayDetail]:
    """Make instruction pairs for a model from the best facts. The filter contains thresholds.

    Raises InvalidInputError, NotFoundError (no such model), NotReadyError (no prompt format).
    """
    return row("replay_run", locals(), ReplayDetail)


def replay_export(
    run: int, *, format: str = DEFAULT, split: str | None = DEFAULT, meta: bool = DEFAULT
) -> Call[list[dict[str, Any]]]:
    """Return the accepted pairs of a run. Formats: alpaca, chat, sharegpt. Splits: train, validation.

    With meta each pair has its origin and its target models.

    Raises InvalidInputError, NotFoundError (no such completed run of the tenant).
    """
    return scalars("replay_export", locals())


def replay_night() -> Call[list[ReplayDetail]]:
    """Run replay_run for each model with a prompt format that has new facts.

    Raises as replay_run.
    """
    return rows("replay_night", locals(), ReplayDetail)


def training_configure(
    name: str,
    prompt_format: str | None,
    *,
    max_sequence_length: int | None = DEFAULT,
    specialization: str = DEFAULT,
    lora: Json = DEFAULT,
) -> Call[None]:
    """Set how a generator is trained. Formats: alpaca, chat. For administrators.

    Raises InvalidInputError, NotFoundError.
    """
    return scalar("training_configure", locals(), convert=nothing)


def training_evaluate(run: int, *, model: str | None = DEFAULT) -> Call[dict[str, Any]]:
    """Evaluate a generator on the held-out pairs of a run and on general questions.

    Raises NotFoundError, QueryCancelledError.
    """
    return scalar("training_evaluate", locals())


def adapter_activate(adapter: str) -> Call[None]:
    """Make an adapter that the tenant has trained the tenant's default generator.

    Raises NotFoundError, NotReadyError (the adapter was withdrawn).
    """
    return scalar("adapter_activate", locals(), convert=nothing)


def adapter_rollback(base: str) -> Call[str]:
    """Make a base the tenant's default generator again, and return the name of the adapter it replaces.

    Raises NotFoundError.
    """
    return scalar("adapter_rollback", locals())


def adapters_trained_on(memory_id: int) -> Call[list[TrainedAdapter]]:
    """List the adapters that were trained on a memory, which may be forgotten."""
    return rows("adapters_trained_on", locals(), TrainedAdapter)
