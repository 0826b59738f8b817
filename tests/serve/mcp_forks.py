"""`mindful mcp` in processes forked from one that has imported it, which takes two seconds: mcp_forks.py DESCRIPTOR.

It listens at the socket whose descriptor it is given, until its standard input ends. A client starts RELAY, which
hands over its arguments, its environment and its three files, and ends as the command does.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

from client.command_process import become

_MOST = 1 << 17
"""Bytes of arguments and environment."""
RELAY = f"""
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {_MOST})
    server.connect("\\0" + sys.argv[1])
    socket.send_fds(server, [json.dumps([sys.argv[2:], dict(os.environ)]).encode()], [0, 1, 2])
    for own in (0, 1):
        os.close(own)
    sys.exit(int(server.recv(16)))
"""


@functools.cache
def address() -> str:
    """Start the process that the others are forked from, unless it runs, and return the name of its socket."""
    name = f"mindful-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen(32)
        process = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        )
    atexit.register(process.communicate)
    return name


def _serve(listener: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while 0 not in select.select([0, listener.fileno()], [], [])[0]:
        connection, _ = listener.accept()
        with connection:
            data, files, _, _ = socket.recv_fds(connection, _MOST, 3)
            if files and not os.fork():
                listener.close()
                _watch(connection, data, files)
            for file in files:
                os.close(file)


def _watch(connection: socket.socket, data: bytes, files: list[int]) -> None:
    """Tell the relay when the command has ended, and end with it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    command = os.fork()
    if not command:
        connection.close()
        become(dict(enumerate(files)), functools.partial(_run, *json.loads(data)))
    for file in [0, *files]:
        os.close(file)
    _, status = os.waitpid(command, 0)
    try:
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    finally:
        os._exit(0)


def _run(arguments: list[str], environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    main(arguments, prog_name="mindful")


if __name__ == "__main__":
    import mindful_serve.mcp.stdio  # noqa: F401 - what the forked processes need not import
    from mindful_client.cli import main

    with socket.socket(fileno=int(sys.argv[1])) as own:
        _serve(own)
