"""A replay run's pairs as files: one a split, and a manifest that tells where they come from and what they must be."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mindful_client.client import Client
from mindful_client.errors import InvalidInputError, NotReadyError
from mindful_client.training import file

SPLITS = ("train", "validation")


@dataclass(frozen=True)
class Dataset:
    """An export that has been read back."""

    manifest: Mapping[str, Any]
    rows: Mapping[str, list[dict[str, Any]]]


def export(client: Client, run: int, directory: Path, format: str) -> Path:
    """Write a run's pairs and their manifest, which is written last, and return its path."""
    pairs = {split: client.replay_export(run, format=format, split=split) for split in SPLITS}
    if not any(pairs.values()):
        raise NotReadyError(f"run {run} has kept no pair", sqlstate="55000", hint="Its refusals say why.")
    model = client.model_training_get(run)
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    stem = f"{model['model']}-{run}-{stamp}"
    files = {}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for split, rows in pairs.items():
            name = f"{stem}.{split}.jsonl"
            files[split] = {"file": name, "pairs": len(rows), "sha256": _write(directory / name, rows)}
        path = directory / f"{stem}.manifest.json"
        manifest = {"run": run, "created_at": stamp, "format": format, "sha256": client.replay_hash(run)}
        _write(path, [manifest | model | {"files": files}])
    except OSError as error:
        raise InvalidInputError(
            f"cannot write to {directory}: {error.strerror}",
            sqlstate="58030",
            hint="Choose another directory.",
        ) from error
    return path


def read(manifest: Path) -> Dataset:
    """Read an export, and make sure that it is as it was written."""
    try:
        told = json.loads(manifest.read_text())
        rows = {split: _read(manifest.parent, told["files"][split]) for split in SPLITS}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{manifest} is no manifest of an export: {error}",
            sqlstate="22023",
            hint="Make one: mindful replay export.",
        ) from error
    if told["format"] != "alpaca":
        raise InvalidInputError(
            f"the format is {told['format']}",
            sqlstate="22023",
            hint="Train on an export in the format alpaca.",
        )
    return Dataset(told, rows)


def check_unchanged(manifest: Path) -> None:
    """Raise if the files are not those that training began with."""
    read(manifest)


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    """Write JSON lines, all or nothing, and return their hash."""
    data = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
    file.write(path, data)
    return hashlib.sha256(data).hexdigest()


def _read(directory: Path, told: Mapping[str, Any]) -> list[dict[str, Any]]:
    data = (directory / told["file"]).read_bytes()
    if hashlib.sha256(data).hexdigest() != told["sha256"]:
        raise InvalidInputError(
            f"{told['file']} is not what was exported", sqlstate="22023", hint="Export the run again."
        )
    return [json.loads(line) for line in data.decode().splitlines()]
