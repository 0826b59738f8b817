"""`mindful serve` in processes forked from one that has imported it: a start costs a tenth of the processor time."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mindful_client.cli import main
from mindful_serve import cli
from mindful_serve.settings import Settings

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["mindful_client.cli", "mindful_serve.cli", "support.forked", "pytest"])

Process = multiprocessing.process.BaseProcess


def start(
    arguments: list[str], environment: Mapping[str, str], stderr: Path | None, patience_s: float | None
) -> Process:
    """Start `mindful serve`; its errors are appended to a file, and it waits that long for its clients."""
    made = _CONTEXT.Process(target=_run, args=(arguments, dict(environment), stderr, patience_s), daemon=True)
    made.start()
    return made


def _run(
    arguments: list[str], environment: Mapping[str, str], stderr: Path | None, patience_s: float | None
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    if stderr is not None:
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
    if patience_s is not None:
        run = cli.run

        def run_impatiently(settings: Settings) -> None:
            run(replace(settings, read_s=patience_s))

        cli.run = run_impatiently
    main(["serve", *arguments])
