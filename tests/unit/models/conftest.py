"""Fixtures of the providers' tests."""

from pathlib import Path

import pytest
from unit.models.host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A backend whose data directory is empty."""
    return Host(tmp_path)
