"""Optional libraries: each belongs to an extra of the distribution pg-mindful."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mindful.core.errors import MissingPackageError


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Turn a failed import of an optional library into error 0A000, with a hint that names its extra."""
    try:
        yield
    except ImportError as error:
        raise MissingPackageError(
            f"a Python package is not installed: {error}",
            f"Install pg-mindful[{name}] into the server's Python environment, and reconnect.",
        ) from None
