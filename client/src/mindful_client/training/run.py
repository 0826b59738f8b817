"""A training from its export to its verdict."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mindful_client.client import Client
from mindful_client.errors import InvalidInputError, MindfulError
from mindful_client.training import adapter, file, rehearsal
from mindful_client.training.dataset import check_unchanged, read
from mindful_client.training.lora import Parameters, Trainer


class Training:
    """Trains on an export; its state lies beside the adapter until it is done."""

    def __init__(
        self,
        client: Client,
        manifest: Path,
        output: Path,
        base: Path | None,
        threads: int,
        given: Mapping[str, Any],
    ) -> None:
        self._client, self._manifest, self._output = client, manifest, output
        self._dataset = read(manifest)
        told = self._dataset.manifest
        self._base = Path(base or told["source"])
        asked = {**told["lora"], "max_sequence_length": told["max_sequence_length"], **given}
        self._parameters = Parameters().updated(asked)
        torch.set_num_threads(threads)

    def run(self, name: str | None, report: Callable[[str], None]) -> dict[str, Any]:
        """Train, register, have the server measure, and return the figures and the verdict."""
        told = self._dataset.manifest
        try:
            self._check_base()
            identity = self._begin()
            try:
                return self._run(identity, name or f"{told['model']}-lora-{identity}"[:40], report)
            except (MindfulError, OSError, RuntimeError, ValueError) as error:
                self._client.training_fail(identity, f"{type(error).__name__}: {error}")
                self._state.unlink(missing_ok=True)
                self._checkpoint(identity).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise InvalidInputError(
                f"{error.filename or self._output}: {error.strerror}",
                sqlstate="58030",
                hint="Make room, or choose another directory: --output. Where the base's file is, --base tells.",
            ) from error

    def _run(self, identity: int, name: str, report: Callable[[str], None]) -> dict[str, Any]:
        told = self._dataset.manifest
        trainer = Trainer(self._base, told, self._parameters, self._checkpoint(identity))
        report("asking the base what it knows, to be rehearsed")
        rehearsed = rehearsal.pairs(self._client, told["model"], self._parameters.rehearsed)
        rows = [*self._dataset.rows["train"], *rehearsed]
        report(f"training on {len(rows)} pairs")
        loss = trainer.train(rows, report)
        check_unchanged(self._manifest)
        if self._client.replay_hash(told["run"]) != told["sha256"]:
            raise InvalidInputError(
                "pairs were forgotten while training ran", sqlstate="55000", hint="Export the run again."
            )
        path = (self._output / f"{name}.gguf").absolute()
        adapter.write(path, trainer.matrices(), self._parameters.alpha, trainer.config)
        trained_on = {self._client.mindful_status().tenant: identity}
        self._client.adapter_register(name, told["model"], str(path), trained_on=trained_on)
        report("measuring the base and the adapter")
        done = self._client.training_finish(identity, name)
        self._state.unlink(missing_ok=True)
        self._checkpoint(identity).unlink(missing_ok=True)
        return {
            "training": identity,
            "adapter": name,
            "file": str(path),
            "loss": round(loss, 4),
            "base": done.base_figures,
            "tuned": done.adapter_figures,
            "verdict": done.verdict,
        }

    @property
    def _state(self) -> Path:
        return self._output / f"{self._manifest.stem}.training.json"

    def _checkpoint(self, identity: int) -> Path:
        return self._output / f"training-{identity}.checkpoint"

    def _begin(self) -> int:
        """Return the training that was stopped on the same data with the same parameters, or a new one."""
        told = self._dataset.manifest
        self._output.mkdir(parents=True, exist_ok=True)
        wanted = {"sha256": told["sha256"], "parameters": asdict(self._parameters)}
        if self._state.exists():
            kept = json.loads(self._state.read_text())
            if {key: kept[key] for key in wanted} == wanted:
                return int(kept["training"])
        identity = self._client.training_start(
            told["run"], told["sha256"], parameters=asdict(self._parameters)
        )
        file.write(self._state, json.dumps(wanted | {"training": identity}).encode())
        return identity

    def _check_base(self) -> None:
        told = self._dataset.manifest
        with self._base.open("rb") as base:
            found = hashlib.file_digest(base, "sha256").hexdigest()
        if found != told["sha256_base"]:
            raise InvalidInputError(
                f"{self._base} is not the file that was registered as {told['model']}",
                sqlstate="22023",
                hint="Give its copy with --base.",
            )
