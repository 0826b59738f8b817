"""One model behind one socket: python -m mindful_client.engine.server, with a description in JSON."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

_LOOK_S = 0.2
_PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that a process gets when its parent ends."""


def parameters(given: dict[str, Any]) -> Any:
    """Make llama.cpp's parameters of a description."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = given["file"]
    params.model_alias = {given["name"]}
    if _has_llguidance(xllamacpp.__file__):
        params.model_tags = {"llguidance"}  # tells mindful that grammars take bounded time
    params.hostnames = [given["socket"]]
    params.port = given.get("port", 0)
    params.n_parallel = given["slots"]
    params.n_ctx = given["slots"] * given["context"]
    params.n_gpu_layers = given["gpu_layers"]
    params.cache_ram_mib = given["cache_mib"]
    params.endpoint_slots = False  # it shows the prompts of all
    for processors in (params.cpuparams, params.cpuparams_batch):
        processors.n_threads = given["threads"]
        processors.poll = 0  # waiting threads sleep
    if given["kind"] == "embedder":
        params.embedding = True
        params.n_batch = params.n_ubatch = _embedder_batch(given["context"])
    return params


def command(given: dict[str, Any]) -> list[str]:
    """Make the command that has a llama-server serve the embedder of a description."""
    batch = _embedder_batch(given["context"])
    values = {
        "model": given["file"],
        "alias": given["name"],
        "host": given["socket"],
        "parallel": given["slots"],
        "ctx-size": given["slots"] * given["context"],
        "gpu-layers": given["gpu_layers"] if given["gpu_layers"] >= 0 else "all",
        "threads": given["threads"],
        "poll": 0,  # waiting threads sleep
        "batch-size": batch,
        "ubatch-size": batch,
    }
    options = [word for key, value in values.items() for word in (f"--{key}", str(value))]
    return [given["llama_server"], *options, "--embedding", "--no-slots", "--no-webui", "--offline"]


def _embedder_batch(context: int) -> int:
    """Tokens that are computed at once. An embedder reads a whole text in one part."""
    return max(512, context)


def _has_llguidance(package: str) -> bool:
    """Return whether the library was built with llguidance. A server without it ends when it is asked for it."""
    for library in Path(package).parent.glob("*.so"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data.find(b"llg_new_matcher") >= 0:
                return True
    return False


def _become(command: list[str], parent: int) -> NoReturn:
    """Run a program in the place of this one. It ends with the parent, as this one would."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(0)
    os.execv(command[0], command)


def main() -> None:
    """Serve until told to stop, or until the process that started this one is gone."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before the library is loaded
    os.umask(0o077)  # only this user opens the socket
    parent = os.getppid()
    given = json.loads(sys.argv[1])
    if given.get("llama_server"):
        _become(command(given), parent)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import xllamacpp

    _server = xllamacpp.Server(parameters(given))
    print("listening", flush=True)
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(0)


if __name__ == "__main__":
    main()
