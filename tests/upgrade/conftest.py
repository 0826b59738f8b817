from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.cluster import Cluster


@pytest.fixture
def new_database(cluster: Cluster) -> Iterator[Callable[[], str]]:
    """Makes empty databases, and returns their names."""
    with ExitStack() as made:
        yield lambda: made.enter_context(cluster.database())
