"""Tries a file in a child process, because llama.cpp aborts on some damaged files, which would end the server."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import cast

from mindful.core.errors import CorruptedModelError, NotReadyError
from mindful.core.jsontext import loads
from mindful.core.ports import Embedder, Generator, Interrupts, Message, ModelSpec, Single

_POLL_SECONDS = 0.05
_TRIED = b"tried"


def probe(spec: ModelSpec, interrupts: Interrupts) -> None:
    """Raise XX001 if loading and running the model ends the child process. The caller finds other errors itself."""
    import subprocess  # 3 ms, and only a registration needs it

    python = os.path.join(sys.prefix, "bin", "python")
    child = subprocess.Popen(
        [python, "-I", "-m", __name__, json.dumps(spec._asdict())],
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
                f'the model file "{spec.adapter or spec.source}" cannot be loaded: the process that loads it ends'
                f" (signal {-child.returncode})",
                "The file may be damaged. Copy it again.",
            )
        assert child.stdout is not None
        if child.stdout.read() != _TRIED:
            raise NotReadyError(
                f'"{python}" cannot try the model file', "Reinstall the server's Python packages there."
            )
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


class _Alone:
    """The interrupts of the child: none, because its parent ends it."""

    def check(self) -> None:
        """Continue."""

    def pending(self) -> bool:
        """Continue."""
        return False


def _try(spec: ModelSpec) -> None:
    from mindful.models.providers import llama

    model = llama.load(spec, _Alone())
    if spec.kind == "embedder":
        cast(Embedder, model).embed(["Hi"], _Alone())
    else:
        generator = cast(Generator, model)
        generator.next_logprobs(generator.encode([Message("user", "Hi")]), ["Hi"], Single(_Alone()))


def main() -> None:
    """Load the model of the first argument, run it, and report that the process still runs."""
    with contextlib.suppress(Exception):  # the caller finds and reports the same error
        _try(ModelSpec(**loads(sys.argv[1])))
    sys.stdout.buffer.write(_TRIED)


if __name__ == "__main__":
    main()
