"""Tries a file in a process of its own first: llama.cpp aborts on some damaged files, which would end the server."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import cast

from mindful.errors import CorruptedModelError, NotReadyError
from mindful.ports import Embedder, Generator, Interrupts, Message, ModelSpec

_POLL_SECONDS = 0.05
_TRIED = b"tried"


def probe(spec: ModelSpec, interrupts: Interrupts) -> None:
    """Raise if loading and running the model ends the process that does it; other errors are the caller's to find."""
    python = Path(sys.prefix) / "bin" / "python"
    child = subprocess.Popen(
        [python, "-I", "-m", __name__, json.dumps(asdict(spec))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        while child.poll() is None:
            interrupts.check()
            try:
                child.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        if child.returncode < 0:
            raise CorruptedModelError(
                f'the model file "{spec.adapter or spec.source}" cannot be loaded: it ends the process that loads it'
                f" (signal {-child.returncode})",
                "The file may be damaged; copy it again.",
            )
        assert child.stdout is not None
        if child.stdout.read() != _TRIED:
            raise NotReadyError(
                f'"{python}" cannot try the model file', "Install the server's Python packages there again."
            )
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


class _Alone:
    """The interrupts of the child, which its parent ends."""

    threads = 1

    def check(self) -> None:
        """Go on."""

    def pending(self) -> bool:
        """Go on."""
        return False


def _try(spec: ModelSpec) -> None:
    from mindful.providers import llama

    model = llama.load(spec, _Alone())
    if spec.kind == "embedder":
        cast(Embedder, model).embed(["Hi"], _Alone())
    else:
        generator = cast(Generator, model)
        generator.next_logprobs(generator.encode([Message("user", "Hi")]), ["Hi"], _Alone())


def main() -> None:
    """Load the model of the first argument and have it compute something; say so if the process is still there."""
    with contextlib.suppress(Exception):  # the caller finds the same error, and reports it
        _try(ModelSpec(**json.loads(sys.argv[1])))
    sys.stdout.buffer.write(_TRIED)


if __name__ == "__main__":
    main()
