"""Calls of the server for exports and trainings only: functions of the schema _mindful."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mindful_client.calls.statement import nothing, row, scalar
from mindful_client.client import Client

_SCHEMA = "_mindful"


@dataclass(frozen=True)
class TrainingDetail:
    """The verdict on a training and the figures that decided it."""

    verdict: str
    active: bool
    base_figures: dict[str, Any]
    adapter_figures: dict[str, Any]


def replay_hash(client: Client, run: int) -> str:
    """Return the SHA-256 of a run's pairs. It changes when a memory that a pair was made from is forgotten.

    Raises NotFoundError.
    """
    return str(client._run(scalar("replay_hash", {"run": run}, schema=_SCHEMA)))


def replay_export_record(client: Client, run: int, files: Sequence[Mapping[str, Any]]) -> None:
    """Record the files that a run was exported to, in consolidation.outputs.

    Raises InvalidInputError, NotFoundError (no such completed run of the tenant).
    """
    client._run(scalar("replay_export_record", {"run": run, "files": files}, convert=nothing, schema=_SCHEMA))


def training_model(client: Client, run: int) -> dict[str, Any]:
    """Return the model of a run, its file, prompt format and LoRA parameters.

    Raises NotFoundError (no such run of the tenant).
    """
    model: dict[str, Any] = client._run(scalar("training_model", {"run": run}, schema=_SCHEMA))
    return model


def training_start(client: Client, run: int, dataset_sha256: str, parameters: Mapping[str, Any]) -> int:
    """Record the start of a training on a run's pairs, and return its id.

    Raises NotFoundError, NotReadyError (the pairs have changed since the export).
    """
    given = {"run": run, "dataset_sha256": dataset_sha256, "parameters": parameters}
    return int(client._run(scalar("training_start", given, schema=_SCHEMA)))


def training_running(client: Client, training: int) -> bool:
    """Return whether a training of the tenant has neither been completed nor failed."""
    return bool(client._run(scalar("training_running", {"id": training}, schema=_SCHEMA)))


def training_finish(client: Client, training: int, adapter: str) -> TrainingDetail:
    """Evaluate the base and the adapter, and make the adapter the tenant's default generator if it is better.

    A training that was completed with this adapter returns its figures again.

    Raises NotFoundError, NotReadyError (the pairs have changed since the export), QueryCancelledError.
    """
    given = {"id": training, "adapter": adapter}
    return client._run(row("training_finish", given, TrainingDetail, schema=_SCHEMA))


def training_fail(client: Client, training: int, error: str) -> None:
    """Record that a training has failed, and why.

    Raises NotFoundError.
    """
    given = {"id": training, "error": error}
    client._run(scalar("training_fail", given, convert=nothing, schema=_SCHEMA))
