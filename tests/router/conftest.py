"""A router, and partitions in databases of the cluster of tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from support import Cluster
from support.routed import Routed, copied, made, removed


@pytest.fixture(scope="session")
def original(cluster: Cluster, roles: Mapping[str, str]) -> Iterator[Routed]:
    """Two partitions that tests copy."""
    routed = made(cluster, roles, 2)
    yield routed
    removed(routed)


@pytest.fixture(scope="session")
def shared(original: Routed) -> Iterator[Routed]:
    """Two partitions whose map tests leave as it is."""
    routed = copied(original)
    yield routed
    removed(routed)


@pytest.fixture
def routed(shared: Routed) -> Iterator[Routed]:
    """Two partitions whose map tests leave as it is, and connections of the test's own."""
    with ExitStack() as opened:
        yield Routed(shared.cluster, shared.router, shared.prefix, shared.roles, opened)


@pytest.fixture
def own(original: Routed) -> Iterator[Routed]:
    """Two partitions of this test's own."""
    routed = copied(original)
    yield routed
    removed(routed)
