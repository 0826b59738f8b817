"""Files that the server's operating system user reads too."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def readable_folder() -> Iterator[Path]:
    """A folder that everybody may read; pytest closes its own, again and again while several runs share it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
