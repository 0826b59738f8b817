"""The service in a thread, which starts sooner than a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from mindful_serve.app import application
from mindful_serve.settings import Settings


@contextmanager
def running(settings: Settings) -> Iterator[str]:
    """Serve on a free port of this machine, and return the address."""
    server = uvicorn.Server(uvicorn.Config(application(settings), port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the service does not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
