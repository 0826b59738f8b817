"""Unit tests need neither a server nor a model."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from mindful import runtime

# Cores are shared, here and where this is built: a slow example is no failure.
settings.register_profile("mindful", deadline=None)
settings.load_profile("mindful")


@pytest.fixture(autouse=True)
def unloaded() -> Iterator[None]:
    """Leave no model behind."""
    yield
    runtime.unload()
