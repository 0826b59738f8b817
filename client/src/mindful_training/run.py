"""A training, from its export to its evaluation."""

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

from mindful_training import adapter, file, rehearsal, server
from mindful_training.dataset import check_unchanged, read
from mindful_training.lora import Parameters, Trainer


class Training:
    """Trains on an export. Its state is a file beside the adapter until it ends."""

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
        content = self._dataset.manifest
        self._base = Path(base or content["source"])
        values = {**content["lora"], "max_sequence_length": content["max_sequence_length"], **given}
        self._parameters = Parameters().updated(values)
        torch.set_num_threads(threads)

    def run(self, name: str | None, report: Callable[[str], None]) -> dict[str, Any]:
        """Train, register and evaluate an adapter, and return the figures and the verdict.

        Raises InvalidInputError (a file is missing, has changed or cannot be written), and the server's errors.
        """
        manifest = self._dataset.manifest
        try:
            self._check_base()
            identity = self._begin()
            try:
                return self._run(identity, name or f"{manifest['model']}-lora-{identity}"[:40], report)
            except (MindfulError, OSError, RuntimeError, ValueError) as error:
                server.training_fail(self._client, identity, f"{type(error).__name__}: {error}")
                self._state.unlink(missing_ok=True)
                self._checkpoint(identity).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise InvalidInputError(
                f"{error.filename or self._output}: {error.strerror}",
                sqlstate="58030",
                hint="Free space or choose another directory with --output. Pass the base's file with --base.",
            ) from error

    def _run(self, identity: int, name: str, report: Callable[[str], None]) -> dict[str, Any]:
        manifest = self._dataset.manifest
        trainer = Trainer(self._base, manifest, self._parameters, self._checkpoint(identity))
        report("generating the base's answers for the rehearsal")
        rehearsed = rehearsal.pairs(self._client, manifest["model"], self._parameters.rehearsed)
        rows = [*self._dataset.rows["train"], *rehearsed]
        report(f"training on {len(rows)} pairs")
        loss = trainer.train(rows, report)
        check_unchanged(self._manifest)
        if server.replay_hash(self._client, manifest["run"]) != manifest["sha256"]:
            raise InvalidInputError(
                "pairs of the run were forgotten during the training",
                sqlstate="55000",
                hint="Export the run again.",
            )
        path = (self._output / f"{name}.gguf").absolute()
        adapter.write(path, trainer.matrices(), self._parameters.alpha, trainer.config)
        trained_on = {self._client.mindful_status().tenant: identity}
        self._client.adapter_register(name, manifest["model"], str(path), trained_on=trained_on)
        report("evaluating the base and the adapter")
        done = server.training_finish(self._client, identity, name)
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
        """Return an interrupted training with the same data and parameters, or start one."""
        manifest = self._dataset.manifest
        self._output.mkdir(parents=True, exist_ok=True)
        # As the file gives it back: JSON has no tuples.
        key = json.loads(json.dumps({"sha256": manifest["sha256"], "parameters": asdict(self._parameters)}))
        if self._state.exists():
            state = json.loads(self._state.read_text())
            # The server ends the evaluation of a command that was killed, and completes its training.
            same = {name: state[name] for name in key} == key
            if same and server.training_running(self._client, state["training"]):
                return int(state["training"])
        identity = server.training_start(
            self._client, manifest["run"], manifest["sha256"], asdict(self._parameters)
        )
        file.write(self._state, json.dumps(key | {"training": identity}).encode())
        return identity

    def _check_base(self) -> None:
        manifest = self._dataset.manifest
        with self._base.open("rb") as base:
            sha256 = hashlib.file_digest(base, "sha256").hexdigest()
        if sha256 != manifest["sha256_base"]:
            raise InvalidInputError(
                f"{self._base} differs from the registered file of {manifest['model']}",
                sqlstate="22023",
                hint="Pass a copy of the registered file with --base.",
            )
