"""Errors as a client sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest


@contextmanager
def fails(sqlstate: str, hint: str | None = r"\w") -> Iterator[pytest.ExceptionInfo[psycopg.Error]]:
    """Expect an error of this SQLSTATE and hint; hint None where PostgreSQL itself raises, without one."""
    with pytest.raises(psycopg.Error) as caught:
        yield caught
    found = caught.value.diag
    assert caught.value.sqlstate == sqlstate, f"{caught.value.sqlstate}: {caught.value}"
    if hint is not None:
        assert re.search(hint, found.message_hint or ""), (
            f"hint {found.message_hint!r} of: {found.message_primary}"
        )
