"""Runs a command with both default models and the brief one behind servers on loopback.

Usage: served.py SERVER COMMAND [ARGUMENT...], by `make test-engine`. SERVER is xllamacpp, as `mindful engine` starts
it, or llama-cpp-python. The command gets the addresses in MINDFUL_TEST_GENERATOR, MINDFUL_TEST_EMBEDDER and
MINDFUL_TEST_BRIEF.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from support.files import readable_folder
from support.weights import write_truncated

SERVERS = ("xllamacpp", "llama-cpp-python")
_CONTEXT = {"generator": 2048, "brief": 2048, "embedder": 512}
_STARTING_S = 120


def main() -> int:
    """Run the command, and return its status."""
    server, *command = sys.argv[1:]
    home = Path(os.environ["MINDFUL_HOME"])
    files = {
        "generator": next((home / "models").glob("smollm2-*.gguf")),
        "embedder": next((home / "models").glob("all-minilm-*-f16.gguf")),
    }
    environment = dict(os.environ)
    with ExitStack() as running:
        folder = running.enter_context(readable_folder())
        files["brief"] = Path(write_truncated(folder / "brief.gguf", str(files["generator"])))
        for kind, file in files.items():
            address = running.enter_context(served(server, home / "venv/bin/python", kind, file))
            environment[f"MINDFUL_TEST_{kind.upper()}"] = address
        environment |= {"MINDFUL_TEST_SERVER": server, "MINDFUL_TEST_MODELS": str(home / "models")}
        return subprocess.run(command, env=environment).returncode


@contextmanager
def served(server: str, python: Path, kind: str, file: Path) -> Iterator[str]:
    """Run one model, and give its address."""
    port = _free_port()
    command = _xllamacpp(kind, file, port) if server == "xllamacpp" else _llama_cpp_python(kind, file, port)
    with subprocess.Popen(
        [python, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait(process, port)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


def _xllamacpp(kind: str, file: Path, port: int) -> Sequence[str]:
    described = {
        "name": kind,
        "kind": kind,
        "file": str(file),
        "socket": "127.0.0.1",
        "port": port,
        "slots": 4,
        "context": _CONTEXT[kind],
        "threads": 1,
        "gpu_layers": 0,
        "cache_mib": 64,
    }
    return ["-m", "mindful_client.engine.server", json.dumps(described)]


def _llama_cpp_python(kind: str, file: Path, port: int) -> Sequence[str]:
    kinds = ["--embedding", "true"] if kind == "embedder" else ["--logits_all", "true"]
    return [
        *("-m", "llama_cpp.server", "--model", str(file), "--host", "127.0.0.1", "--port", str(port)),
        *("--n_ctx", str(_CONTEXT[kind]), "--n_threads", "1", "--interrupt_requests", "false", *kinds),
    ]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + _STARTING_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit(f"the server did not start: status {process.poll()}")


if __name__ == "__main__":
    sys.exit(main())
