"""A backend at work keeps none of the others waiting: what needs all backends of the server goes on."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support import GENERATOR, Cluster
from support.clock import within
from support.files import readable_folder
from support.models import register_once
from support.programs import run as run_program
from support.weights import write_adapter
from support.work import AT_WORK

WORK = {name: AT_WORK[name] for name in ("decode", "prefill", "many", "embed", "classify", "insert")} | {
    "rerank": "select count(*) from llm_rerank('red fox', array(select repeat('words about the thing ', 50) || i"
    " from generate_series(1, 3000) i), 'crossed')",
    "load": "select model_unload(), llm_token_count('Hi') from generate_series(1, 100)",
    "adapter load": "select model_unload(), llm_token_count('Hi', 'style') from generate_series(1, 100)",
    "reranker load": "select model_unload(), llm_rerank('fox', array['a' || i], 'crossed')"
    " from generate_series(1, 2000) i",
}


@pytest.fixture
def reranker(crossed: str, db: psycopg.Connection) -> None:
    """A cross-encoder. Who registers it imports its library, which takes seconds."""
    register_once(db, "crossed", "reranker", "sentence_transformers", crossed)


@pytest.fixture
def adapter(db: psycopg.Connection) -> Iterator[None]:
    """An adapter."""
    with readable_folder() as folder:
        db.execute(
            "select adapter_register('style', %s, %s, granted_to => '{mindful_user}')",
            (GENERATOR, write_adapter(folder / "style.gguf")),
        )
        yield


NEEDS = {"rerank": "reranker", "reranker load": "reranker", "adapter load": "adapter"}


@pytest.mark.shares
@pytest.mark.parametrize("work", WORK)
def test_a_database_is_dropped_while_a_model_computes(
    cluster: Cluster, db: psycopg.Connection, work: str, request: pytest.FixtureRequest
) -> None:
    if work in NEEDS:
        request.getfixturevalue(NEEDS[work])
    db.execute("select llm_generate('Hi', max_tokens => 1), llm_embed('Hi')")
    name = f"{db.info.dbname}_dropped"
    with cluster.connect() as other, cluster.connect(db.info.dbname) as fresh:
        busy = fresh if work == "reranker load" else db  # imports the library in the call
        for clock in within(1):
            other.execute(f"create database {name} template template0".encode())
            thread = threading.Thread(target=run, args=(busy, WORK[work]))
            thread.start()
            time.sleep(0.4)
            clock.start()
            other.execute(f"drop database {name}".encode())
            clock.stop()
            assert thread.is_alive(), "it ended before the database was dropped"
            other.execute("select pg_cancel_backend(%s)", (busy.info.backend_pid,))
            thread.join()


def run(connection: psycopg.Connection, sql: str) -> None:
    with contextlib.suppress(psycopg.errors.QueryCanceled):
        connection.execute(sql.encode())


def test_a_load_takes_part_in_barriers_and_ends_by_a_cancel(
    db: psycopg.Connection, server_python: str
) -> None:
    (source,) = db.execute("select source from model where name = %s", (GENERATOR,)).fetchone() or ("",)
    script = Path(__file__).parents[2] / "support" / "load_gaps.py"
    gap, *ends = run_program(server_python, str(script), source).split()
    assert float(gap) < 0.1
    assert ends == ["cancelled", "cancelled"]
