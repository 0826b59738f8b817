"""A pytest plugin that names the test to Coverage.py, so that each line knows the tests that run it."""

from collections.abc import Iterator

import pytest
from coverage import Coverage


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Call each test by its path and name, without its parameters."""
    running = Coverage.current()
    assert running is not None
    running.switch_context(item.nodeid.split("[")[0])
    return (yield)
