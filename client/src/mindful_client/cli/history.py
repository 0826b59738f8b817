"""The lines that were typed in a chat, for the next one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_LINES = 1000


@contextlib.contextmanager
def edited_lines() -> Iterator[None]:
    """Give input() its line editing, and the lines of earlier chats; keep those of this one.

    They are in the file that MINDFUL_HISTORY names, in $XDG_STATE_HOME/mindful/chat_history by default. An empty
    MINDFUL_HISTORY keeps none. A file that cannot be read or written is none.
    """
    try:
        import readline
    except ImportError:
        yield
        return
    path = _path()
    if path is None:
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        readline.set_history_length(_LINES)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(0o600)
            readline.write_history_file(path)


def _path() -> Path | None:
    named = os.environ.get("MINDFUL_HISTORY")
    if named is not None:
        return Path(named) if named else None
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / "mindful/chat_history"
