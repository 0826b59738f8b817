"""What a forked process does to be a command."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import NoReturn


def become(files: Mapping[int, int], run: Callable[[], object]) -> NoReturn:
    """Take files as the standard ones of these numbers, run a command, and end as it does."""
    for number, file in files.items():
        os.dup2(file, number)
        os.close(file)
    # Python remembers of its own whether they can be sought in.
    if 0 in files:
        sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    status = 1
    try:
        run()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
