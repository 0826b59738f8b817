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
import traceback
from typing import Any

import mindful_training.run  # noqa: F401 - what the forked processes need not import
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
                _become(request, *outputs)
            for output in outputs:
                os.close(output)
        requests.send(json.dumps(answer).encode())


def _become(request: dict[str, Any], stdout: int, stderr: int) -> None:
    """Be the command until it ends."""
    for fd, output in ((1, stdout), (2, stderr)):
        os.dup2(output, fd)
        os.close(output)
    # Python remembers of its own whether they can be sought in.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.update(request["environment"])
    status = 1
    try:
        if request["disk"]:
            size, directory = request["disk"]
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)
        main(request["arguments"], prog_name="mindful")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as own:
        serve(own)
    os._exit(0)  # PyTorch takes long to leave
