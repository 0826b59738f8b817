"""Replay: training samples made of facts, their export, and the adapters trained on them."""

from __future__ import annotations

from typing import Any

from mindful_client.calls.statement import DEFAULT, Call, Json, nothing, row, rows, scalar, scalars
from mindful_client.types import ReplayDetail, TrainedAdapter, TrainingDetail


def replay_run(model: str, *, filter: Json = DEFAULT) -> Call[ReplayDetail]:
    """Make instruction pairs for a model of the best facts; the filter holds thresholds.

    Raises InvalidInputError, NotFoundError (no such model), NotReadyError (no prompt format).
    """
    return row("replay_run", locals(), ReplayDetail)


def replay_export(
    run: int, *, format: str = DEFAULT, split: str | None = DEFAULT
) -> Call[list[dict[str, Any]]]:
    """Return the pairs that a run has kept. Formats: alpaca, chat, sharegpt; splits: train, validation.

    Raises InvalidInputError, NotFoundError (no such run of yours that is completed).
    """
    return scalars("replay_export", locals())


def replay_hash(run: int) -> Call[str]:
    """Return the SHA-256 of a run's pairs, which changes when some are forgotten.

    Raises NotFoundError.
    """
    return scalar("replay_hash", locals())


def model_training_set(
    name: str,
    prompt_format: str | None,
    *,
    max_sequence_length: int | None = DEFAULT,
    specialisation: str = DEFAULT,
    lora: Json = DEFAULT,
) -> Call[None]:
    """Say how a generator is trained. Formats: alpaca, chatml. For administrators.

    Raises InvalidInputError, NotFoundError.
    """
    return scalar("model_training_set", locals(), convert=nothing)


def model_training_get(run: int) -> Call[dict[str, Any]]:
    """Return what training on a run's pairs needs to know of its model.

    Raises NotFoundError (no such run of yours).
    """
    return scalar("model_training_get", locals())


def training_evaluate(run: int, *, model: str | None = DEFAULT) -> Call[dict[str, Any]]:
    """Measure a generator on the held-out pairs of a run and on general questions.

    Raises NotFoundError, QueryCancelledError.
    """
    return scalar("training_evaluate", locals())


def training_start(run: int, dataset_sha256: str, *, parameters: Json = DEFAULT) -> Call[int]:
    """Enter a training on a run's pairs and return its id.

    Raises NotFoundError, NotReadyError (the pairs have changed since they were exported).
    """
    return scalar("training_start", locals())


def training_finish(id: int, adapter: str) -> Call[TrainingDetail]:
    """Measure the base and the adapter, make the adapter the user's default if it is better, and return both.

    Raises NotFoundError, NotReadyError (the pairs have changed since they were exported), QueryCancelledError.
    """
    return row("training_finish", locals(), TrainingDetail)


def training_fail(id: int, error: str) -> Call[None]:
    """Enter that a training has failed, and why.

    Raises NotFoundError.
    """
    return scalar("training_fail", locals(), convert=nothing)


def adapter_activate(adapter: str) -> Call[None]:
    """Make an adapter that the user has trained the user's default generator.

    Raises NotFoundError, NotReadyError (the adapter was withdrawn).
    """
    return scalar("adapter_activate", locals(), convert=nothing)


def adapter_rollback(base: str) -> Call[str]:
    """Make a base the user's default generator again, and return the name of the adapter that was.

    Raises NotFoundError.
    """
    return scalar("adapter_rollback", locals())


def adapters_trained_on(memory_id: int) -> Call[list[TrainedAdapter]]:
    """List the adapters that were trained on a memory, be it forgotten or not."""
    return rows("adapters_trained_on", locals(), TrainedAdapter)
