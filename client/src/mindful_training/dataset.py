"""The pairs of a replay run as files: one per split, and a manifest with their origin and hashes."""

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

from mindful_training import file, server

SPLITS = ("train", "validation")


@dataclass(frozen=True)
class Dataset:
    """An export read from its files."""

    manifest: Mapping[str, Any]
    rows: Mapping[str, list[dict[str, Any]]]


def export(client: Client, run: int, directory: Path, format: str) -> Path:
    """Write a run's pairs and then their manifest, and return the manifest's path.

    Raises NotReadyError (the run accepted no pair), InvalidInputError (the directory cannot be written).
    """
    pairs = {split: client.replay_export(run, format=format, split=split) for split in SPLITS}
    if not any(pairs.values()):
        raise NotReadyError(
            f"run {run} accepted no pair",
            sqlstate="55000",
            hint="List the reasons in training_sample.refused.",
        )
    model = server.training_model(client, run)
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    stem = f"{model['model']}-{run}-{stamp}"
    files = {}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for split, rows in pairs.items():
            name = f"{stem}.{split}.jsonl"
            files[split] = {"file": name, "pairs": len(rows), "sha256": _write(directory / name, rows)}
        path = directory / f"{stem}.manifest.json"
        manifest = {
            "run": run,
            "created_at": stamp,
            "format": format,
            "sha256": server.replay_hash(client, run),
        }
        _write(path, [manifest | model | {"files": files}])
    except OSError as error:
        raise InvalidInputError(
            f"cannot write to {directory}: {error.strerror}",
            sqlstate="58030",
            hint="Choose another directory.",
        ) from error
    return path


def export_dated(client: Client, run: int, directory: Path, format: str) -> Path:
    """Write a run's pairs, with meta and target_models, to a file named by model and date, and record it in the run.

    Raises InvalidInputError (the directory cannot be written).
    """
    rows = client.replay_export(run, format=format, meta=True)
    [model] = {model for row in rows for model in row["target_models"]}
    path = directory / f"{model}-{datetime.now(UTC):%Y-%m-%d}-{run}.jsonl"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        sha256 = _write(path, rows)
    except OSError as error:
        raise InvalidInputError(
            f"cannot write to {directory}: {error.strerror}",
            sqlstate="58030",
            hint="Choose another directory.",
        ) from error
    server.replay_export_record(client, run, [{"file": path.name, "pairs": len(rows), "sha256": sha256}])
    return path


def read(manifest: Path) -> Dataset:
    """Read an export, and check its hashes.

    Raises InvalidInputError (no manifest, another hash, or a format other than alpaca).
    """
    try:
        content = json.loads(manifest.read_text())
        rows = {split: _read(manifest.parent, content["files"][split]) for split in SPLITS}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{manifest} is not a manifest of an export: {error}",
            sqlstate="22023",
            hint="Write one with mindful replay export.",
        ) from error
    if content["format"] != "alpaca":
        raise InvalidInputError(
            f"the export has the format {content['format']}",
            sqlstate="22023",
            hint="Export the run in the format alpaca.",
        )
    return Dataset(content, rows)


def check_unchanged(manifest: Path) -> None:
    """Raise InvalidInputError if a file has changed since the export."""
    read(manifest)


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    """Write JSON lines atomically, and return their SHA-256."""
    data = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows).encode()
    file.write(path, data)
    return hashlib.sha256(data).hexdigest()


def _read(directory: Path, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    data = (directory / entry["file"]).read_bytes()
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise InvalidInputError(
            f"{entry['file']} has changed since the export", sqlstate="22023", hint="Export the run again."
        )
    return [json.loads(line) for line in data.decode().splitlines()]
