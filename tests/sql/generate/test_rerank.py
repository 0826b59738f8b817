"""Reranking, by itself and within a recall."""

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import fails, one
from support.clock import within

TEXTS = ["The red fox sleeps in the barn.", "A blue bird sings.", "The fox and the bird are friends."]


def register(admin: psycopg.Connection, name: str = "words", **options: object) -> None:
    admin.execute("select model_register(%s, 'reranker', 'scripted', '', %s)", (name, Jsonb(options)))


def scores(connection: psycopg.Connection, arguments: str, *values: object) -> list[float | None] | None:
    row = connection.execute(f"select llm_rerank({arguments})", values).fetchone()
    assert row
    found: list[float | None] | None = row[0]
    return found


@pytest.mark.smoke
def test_each_text_has_a_score(admin: psycopg.Connection, ana: psycopg.Connection) -> None:
    register(admin)
    assert scores(ana, "'fox bird', %s", [*TEXTS, None]) == [0.5, 0.5, 1.0, None]
    assert scores(ana, "null, '{x}'") is None
    assert scores(ana, "'fox', null") is None
    assert scores(ana, "'fox', '{}'") == []


@pytest.mark.smoke
def test_time_is_limited(admin: psycopg.Connection, ana: psycopg.Connection) -> None:
    register(admin, delay_ms=100)
    for _ in within(1):
        found = scores(ana, "'fox', %s, limit_ms => 450", TEXTS * 10)
        assert found
        assert found[5:] == [None] * 25
    assert found
    assert found[:2] == [1, 0]


def test_a_cancel_is_heard(admin: psycopg.Connection, ana: psycopg.Connection) -> None:
    register(admin, delay_ms=20)
    ana.execute("set statement_timeout = 200")
    for _ in within(1):
        with pytest.raises(psycopg.errors.QueryCanceled):
            scores(ana, "'fox', %s", TEXTS * 100)


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("'fox', '{x}'", "55000"),
        ("'fox', '{x}', 'nobody'", "42704"),
        ("'fox', '{x}', 'all-minilm-l6-v2'", "42704"),
    ],
)
def test_a_model_that_is_none_is_refused(ana: psycopg.Connection, arguments: str, sqlstate: str) -> None:
    with fails(sqlstate):
        scores(ana, arguments)


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("' ', '{x}'", "22023"),
        ("'fox', '{x,\" \"}'", "22023"),
        ("'fox', '{{x,y},{z,w}}'", "22023"),
        ("'fox', '{x}', limit_ms => 0", "22023"),
        ("'fox', array[repeat('x', 300000)]", "54000"),
    ],
)
@pytest.mark.smoke
def test_bad_arguments_are_refused(
    admin: psycopg.Connection, ana: psycopg.Connection, arguments: str, sqlstate: str
) -> None:
    register(admin)
    with fails(sqlstate):
        scores(ana, arguments)


def test_llama_runs_no_reranker(admin: psycopg.Connection) -> None:
    with fails("22023"):
        admin.execute("select model_register('words', 'reranker', 'llama_cpp', '/nowhere')")


def test_a_cross_encoder_reads_query_and_text_together(crossed: str, db: psycopg.Connection) -> None:
    """Also where a plan was compiled: PostgreSQL's compiler is an LLVM, and libraries beside PyTorch bring another."""
    # In one connection, as each imports torch for seconds.
    db.execute("set jit_above_cost = 0")
    db.execute("set jit_optimize_above_cost = 0")
    assert "JIT" in str(db.execute("explain (analyze) select sum(i) from generate_series(1, 9) i").fetchall())
    db.execute("select model_register('crossed', 'reranker', 'sentence_transformers', %s)", (crossed,))
    read = "select count(llm_rerank('fox', array['fox ' || i], 'crossed')) from generate_series(1, 2) i"
    assert one(db, read) == 2
    first = scores(db, "'red fox', %s, 'crossed'", TEXTS * 4)
    assert first
    assert all(value is not None and 0 <= value <= 1 for value in first)
    assert first[:3] == pytest.approx(first[3:6], abs=1e-5)
    assert len({round(value or 0, 7) for value in first}) == 3
    other = scores(db, "'blue bird', %s, 'crossed'", TEXTS)
    assert other != pytest.approx(first[:3], abs=1e-7)


def recall(connection: psycopg.Connection, arguments: str) -> list[tuple[str, float | None]]:
    return connection.execute(f"select content, rerank from memory_recall({arguments})").fetchall()


def test_a_recall_is_reranked(scripted: None, admin: psycopg.Connection, ana: psycopg.Connection) -> None:
    for text in TEXTS:
        ana.execute("select memory_insert(%s)", (text,))
    with fails("55000"):
        recall(ana, "'fox bird', 2, rerank => true")
    register(admin)
    assert recall(ana, "'bird and fox friends', 2, rerank => true")[0] == (TEXTS[2], 0.75 + 0.25)
    assert [rerank for _, rerank in recall(ana, "'fox bird', 2")] == [None, None]


def test_a_slow_reranker_leaves_the_order_as_it_was(
    scripted: None, admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    register(admin, delay_ms=200)
    for text in TEXTS:
        ana.execute("select memory_insert(%s)", (text,))
    ana.execute("select setting_set('recall_rerank_ms', '100')")
    for _ in within(1):
        assert recall(ana, "'fox bird', 3, rerank => true") == recall(ana, "'fox bird', 3")
    ana.execute("select setting_set('recall_rerank_ms', '5000')")
    assert [rerank for _, rerank in recall(ana, "'fox bird', 3, rerank => true")] == [1, 0.5, 0.5]
