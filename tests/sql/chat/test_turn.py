"""What one turn of a chat asks of the server: statements and embeddings are counted, not timed."""

from __future__ import annotations

import json
from collections.abc import Mapping

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, Cluster

WATCH = """do language plpython3u $do$
from mindful.core.backend import Backend
from mindful.models.providers.llama import embedder

rows, embed = Backend.rows, embedder.LlamaEmbedder.embed
Backend.watched, Backend.depth = [], 0

def watched_rows(self, sql, types=(), arguments=()):
    if sql != "select":  # the look for a cancel
        Backend.watched.append([Backend.depth, " ".join(sql.split())])
    Backend.depth += 1
    try:
        return rows(self, sql, types, arguments)
    finally:
        Backend.depth -= 1

def watched_embed(self, texts, interrupts):
    Backend.watched.append(["at once", " ".join(texts)])
    Backend.watched += [["embedded", text] for text in texts]
    return embed(self, texts, interrupts)

Backend.rows, embedder.LlamaEmbedder.embed = watched_rows, watched_embed
$do$"""
READ = """do language plpython3u $do$
import json
from mindful.core.backend import Backend
watched, Backend.watched[:] = Backend.watched[:], []
plpy.execute(plpy.prepare("select set_config('test.watched', $1, false)", ["text"]), [json.dumps(watched)])
$do$"""
MESSAGE = "My sister Nora moved to Turin, and I miss her."
REQUEST = "Tell me when the Rhine was straightened."
PERSONAL = "What did I promise my dentist?"
"""A question that memories alone can answer: whether they do is weighed."""


@pytest.fixture(scope="module")
def watched(
    cluster: Cluster, template: str, roles: Mapping[str, str], request: pytest.FixtureRequest
) -> list[tuple[int | str, str]]:
    """What the third turn of a session ran and embedded; a parameter is the turn's message."""
    with cluster.database(template) as name, cluster.connect(name) as db:
        return watch(db, roles["ana"], getattr(request, "param", MESSAGE))


def watch(db: psycopg.Connection, name: str, message: str) -> list[tuple[int | str, str]]:
    db.execute(WATCH)
    role = psycopg.sql.Identifier(name)
    db.execute(psycopg.sql.SQL("set role {}").format(role))
    row = db.execute("select session_start('a talk')").fetchone()
    assert row
    said = [
        {"role": ("user", "assistant")[at % 2], "content": f"Nora moved to Porto in 19{at}."}
        for at in range(60)
    ]
    db.execute("select message_insert_many(%s, %s)", (row[0], Jsonb(said)))
    db.execute("select session_summarize(%s)", (row[0],))
    for said_now in ("Who is Nora?", "How old is Nora?", message):
        db.execute("reset role")
        db.execute(READ)
        db.execute(psycopg.sql.SQL("set role {}").format(role))
        db.execute("select llm_chat(%s, %s, model => %s)", (said_now, row[0], SCRIPTED_GENERATOR))
    db.execute("reset role")
    db.execute(READ)
    found = db.execute("select current_setting('test.watched')").fetchone()
    assert found
    return [(kind, text) for kind, text in json.loads(found[0])]


def test_a_turn_takes_a_handful_of_statements(watched: list[tuple[int | str, str]]) -> None:
    own = [text for kind, text in watched if kind == 0]
    nested = [text for kind, text in watched if kind == 1]
    assert len(own) <= 19, "\n".join(own)
    assert len(nested) <= 5, "\n".join(nested)


def test_a_turn_enters_python_once_more_to_embed_what_is_stored(watched: list[tuple[int | str, str]]) -> None:
    entered = [kind for kind, text in watched if "pg_catalog.pg_extension" in text]
    assert entered == [0, 1]


def test_a_turn_embeds_its_message_and_its_reply_once(watched: list[tuple[int | str, str]]) -> None:
    embedded = [text for kind, text in watched if kind == "embedded"]
    assert embedded.count(MESSAGE) == 1
    assert len(embedded) == 2


@pytest.mark.parametrize("watched", [REQUEST], indirect=True)
def test_a_request_is_embedded_together_with_its_question(watched: list[tuple[int | str, str]]) -> None:
    at_once = [text for kind, text in watched if kind == "at once"]
    assert at_once[0] == f"{REQUEST} when the Rhine was straightened."
    assert [text for kind, text in watched if kind == "embedded"].count(REQUEST) == 1


@pytest.mark.parametrize("watched", [PERSONAL], indirect=True)
def test_a_question_about_own_matters_takes_few_more(watched: list[tuple[int | str, str]]) -> None:
    own = [text for kind, text in watched if kind == 0]
    assert len(own) <= 20, "\n".join(own)
    embedded = [text for kind, text in watched if kind == "embedded"]
    assert embedded.count(PERSONAL) == 1
    assert embedded[-1].startswith("I do not know")
    parts = embedded[1:-1]
    assert len(set(parts)) == len(parts) <= 6
    assert all(set(part.split()) < set(PERSONAL.split()) for part in parts)
