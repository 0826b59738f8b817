"""Commands in processes forked from one that has imported PyTorch: train_server.py FILE_DESCRIPTOR.

A request comes over that socket with the ends of two pipes, for what the command prints. The answer is the number
of the process, and its exit status when that is asked for. To import PyTorch takes longer than to train on a model
of two layers.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from functools import partial
from typing import Any

import mindful_training.run  # noqa: F401 - what the forked processes need not import
from client.command_process import become
from mindful_client.cli import main


def serve(requests: socket.socket) -> None:
    """Answer until the other end is closed."""
    while True:
        data, outputs, _, _ = socket.recv_fds(requests, 65536, 2)
        if not data:
            return
        request = json.loads(data)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                requests.close()
                become({1: outputs[0], 2: outputs[1]}, partial(_run, request))
            for output in outputs:
                os.close(output)
        requests.send(json.dumps(answer).encode())


def _run(request: dict[str, Any]) -> None:
    os.environ.update(request["environment"])
    if request["disk"]:
        size, directory = request["disk"]
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)
    main(request["arguments"], prog_name="mindful")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as own:
        serve(own)
    os._exit(0)  # PyTorch takes long to leave
