"""A server without the optional extras does all that does not need them, and says which extra the rest needs."""

from __future__ import annotations

import psycopg
import pytest
from support import SCRIPTED_EMBEDDER, SCRIPTED_GENERATOR
from support.calls import ARGUMENTS, functions

EXTRAS = {
    "documents": ("semantic_text_splitter", "tree_sitter"),
    "learning": ("dateutil", "syntok", "detect_secrets", "phonenumbers", "stdnum"),
}
NEEDS = {
    "document_insert": "documents",
    "memory_consolidate": "learning",
    "replay_night": "learning",
    "replay_run": "learning",
}
REPLAY = {"replay_run": {"model": SCRIPTED_GENERATOR, "filter": {"level": "information"}}}
HIDE = """
    create function pg_temp.hide(packages text[]) returns void language plpython3u as $$
    import sys
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]
    sys.modules.update(dict.fromkeys(packages))
    $$
"""


def outcomes(connection: psycopg.Connection) -> dict[str, str]:
    """By function that may not be used: the hint of its error 0A000."""
    hints = {}
    for name, function in functions(connection).items():
        statement, values = function.statement({**ARGUMENTS[name], **REPLAY.get(name, {})})
        try:
            with connection.transaction(force_rollback=True):
                connection.execute(statement, values)
        except psycopg.errors.FeatureNotSupported as error:
            hints[name] = error.diag.message_hint or ""
        except psycopg.Error:  # an argument names what is not there
            continue
    return hints


@pytest.fixture
def remembering(db: psycopg.Connection, ana: psycopg.Connection) -> psycopg.Connection:
    """Ana, with a fact that may be trained on and a message that was not consolidated yet."""
    db.execute("select model_default_set(%s)", (SCRIPTED_EMBEDDER,))
    db.execute("select model_default_set(%s)", (SCRIPTED_GENERATOR,))
    db.execute("select training_configure(%s, 'chat')", (SCRIPTED_GENERATOR,))
    ana.execute("select setting_set('training_consent', 'true')")
    say = "select message_insert(session_start(), 'user', %s)"
    ana.execute(say, ("My dog is called Rex. I live in Oslo.",))
    ana.execute("select memory_consolidate()")
    ana.execute(say, ("Yesterday I bought a red bicycle.",))
    return ana


def test_only_what_needs_an_extra_is_refused_without_it(
    db: psycopg.Connection, remembering: psycopg.Connection
) -> None:
    user = remembering.execute("select current_user").fetchone()
    assert user is not None
    assert outcomes(remembering) == {}
    db.execute(HIDE)
    db.execute("select pg_temp.hide(%s)", ([name for names in EXTRAS.values() for name in names],))
    db.execute("select set_config('role', %s, false)", user)
    hints = outcomes(db)
    assert set(hints) == set(NEEDS)
    for name, extra in NEEDS.items():
        assert f"pg-mindful[{extra}]" in hints[name]
