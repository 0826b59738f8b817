from __future__ import annotations

import psycopg
import pytest
from support import SCRIPTED_EMBEDDER


@pytest.fixture
def scripted(admin: psycopg.Connection) -> None:
    """The default embedder takes no time; texts with the same words are the same to it."""
    admin.execute("select model_default_set(%s, force => true)", (SCRIPTED_EMBEDDER,))


@pytest.fixture
def queueing(scripted: None, admin: psycopg.Connection) -> None:
    """Everybody's memories are embedded later."""
    admin.execute("""select setting_set('embedding_mode', '"async"', 'global')""")
