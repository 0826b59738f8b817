"""Unit tests need neither a server nor a model."""

from collections.abc import Iterator

import pytest
from mindful import runtime


@pytest.fixture(autouse=True)
def unloaded() -> Iterator[None]:
    """Leave no model behind."""
    yield
    runtime.unload()
