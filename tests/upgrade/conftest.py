from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.cluster import Cluster


@pytest.fixture
def new_database(cluster: Cluster) -> Iterator[Callable[[], str]]:
    """Makes empty databases, and returns their names."""
    made: list[str] = []

    def make() -> str:
        made.append(cluster.create_database())
        return made[-1]

    yield make
    for name in made:
        cluster.drop_database(name)
