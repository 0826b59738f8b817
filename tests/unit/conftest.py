"""Unit tests need neither a server nor a model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from mindful.models import runtime

# Cores are shared, here and where this is built: a slow example is no failure.
settings.register_profile("mindful", deadline=None)
settings.load_profile("mindful")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make every unit test that is not slow part of `make check`."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("slow"):
            item.add_marker("smoke")


@pytest.fixture(autouse=True)
def unloaded() -> Iterator[None]:
    """Leave no model behind."""
    yield
    runtime.unload()
