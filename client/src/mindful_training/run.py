"""A training, from its export to its evaluation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from mindful_client.client import Client
from mindful_client.errors import InvalidInputError, MindfulError, NotFoundError

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
        try:
            self._check_base()
            state = self._interrupted(name) or self._begin(name)
            try:
                return self._run(state, report)
            except (MindfulError, OSError, RuntimeError, ValueError) as error:
                self._fail(state["training"], f"{type(error).__name__}: {error}")
                raise
        except OSError as error:
            raise InvalidInputError(
                f"{error.filename or self._output}: {error.strerror}",
                sqlstate="58030",
                hint="Free space or choose another directory with --output. Pass the base's file with --base.",
            ) from error

    def _run(self, state: dict[str, Any], report: Callable[[str], None]) -> dict[str, Any]:
        if "loss" not in state:
            state["loss"] = self._train(state, report)
            self._save(state)
        report("evaluating the base and the adapter")
        done = server.training_finish(self._client, state["training"], state["adapter"])
        self._remove(state["training"])
        return {
            "training": state["training"],
            "adapter": state["adapter"],
            "file": str(self._file(state["adapter"])),
            "loss": state["loss"],
            "base": done.base_figures,
            "tuned": done.adapter_figures,
            "verdict": done.verdict,
        }

    def _train(self, state: Mapping[str, Any], report: Callable[[str], None]) -> float:
        """Train and register the adapter, and return the loss."""
        manifest, path = self._dataset.manifest, self._file(state["adapter"])
        trainer = Trainer(self._base, manifest, self._parameters, self._checkpoint(state["training"]))
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
        adapter.write(path, trainer.matrices(), self._parameters.alpha, trainer.config)
        trained_on = {self._client.mindful_status().tenant: state["training"]}
        self._client.adapter_register(state["adapter"], manifest["model"], str(path), trained_on=trained_on)
        return round(loss, 4)

    @property
    def _state(self) -> Path:
        return self._output / f"{self._manifest.stem}.training.json"

    def _checkpoint(self, identity: int) -> Path:
        return self._output / f"training-{identity}.checkpoint"

    def _file(self, adapter: str) -> Path:
        return (self._output / f"{adapter}.gguf").absolute()

    @property
    def _key(self) -> dict[str, Any]:
        """What another call must have in common to take a training up."""
        key = {"sha256": self._dataset.manifest["sha256"], "parameters": asdict(self._parameters)}
        # As the file gives it back: JSON has no tuples.
        return dict(json.loads(json.dumps(key)))

    def _interrupted(self, name: str | None) -> dict[str, Any] | None:
        """Return the state of a killed command that this one takes up. Another one's training is given up."""
        if not self._state.exists():
            return None
        state: dict[str, Any] = json.loads(self._state.read_text())
        same = self._key.items() <= state.items() and name in (None, state.get("adapter"))
        # The server goes on with an evaluation, whose figures it returns to the next call.
        if same and ("loss" in state or server.training_running(self._client, state["training"])):
            return state
        self._fail(state["training"], "another training was started in its place")
        return None

    def _begin(self, name: str | None) -> dict[str, Any]:
        """Record the start of a training, and return its state."""
        if name and self._file(name).exists():
            raise InvalidInputError(
                f"{self._file(name)} exists", sqlstate="58P02", hint="Choose another --name or --output."
            )
        self._output.mkdir(parents=True, exist_ok=True)
        manifest = self._dataset.manifest
        identity = server.training_start(
            self._client, manifest["run"], manifest["sha256"], asdict(self._parameters)
        )
        adapter = name or f"{manifest['model']}-lora-{identity}"[:40]
        state = {**self._key, "training": identity, "adapter": adapter}
        self._save(state)
        return state

    def _save(self, state: Mapping[str, Any]) -> None:
        file.write(self._state, json.dumps(state).encode())

    def _fail(self, identity: int, error: str) -> None:
        with suppress(NotFoundError):  # it may have ended, or been forgotten
            server.training_fail(self._client, identity, error)
        self._remove(identity)

    def _remove(self, identity: int) -> None:
        self._state.unlink(missing_ok=True)
        self._checkpoint(identity).unlink(missing_ok=True)

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
