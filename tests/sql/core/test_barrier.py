"""A backend at work keeps none of the others waiting: what needs all backends of the server goes on."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from support import GENERATOR, Connect
from support.clock import within
from support.files import readable_folder
from support.programs import run as run_program
from support.weights import write_adapter
from support.work import AT_WORK

WORK = {name: AT_WORK[name] for name in ("decode", "prefill", "many", "embed", "classify", "insert")} | {
    "rerank": "select count(*) from llm_rerank('red fox', array(select repeat('words about the thing ', 50) || i"
    " from generate_series(1, 3000) i), 'crossed')",
    "load": "select model_unload(), llm_token_count('Hi') from generate_series(1, 100)",
    "adapter load": "select model_unload(), llm_token_count('Hi', 'style') from generate_series(1, 100)",
    "reranker load": "select model_unload(), (select count(*) from llm_rerank('fox', '{a}', 'crossed'))"
    " from generate_series(1, 200)",
}


@pytest.fixture
def models(crossed: str, admin: psycopg.Connection) -> Iterator[None]:
    """A cross-encoder and an adapter."""
    admin.execute("select model_register('crossed', 'reranker', 'sentence_transformers', %s)", (crossed,))
    with readable_folder() as folder:
        admin.execute(
            "select adapter_register('style', %s, %s, granted_to => '{mindful_user}')",
            (GENERATOR, write_adapter(folder / "style.gguf")),
        )
        yield


@pytest.mark.parametrize("work", WORK)
def test_a_database_is_dropped_while_a_model_computes(
    connect: Connect, work: str, request: pytest.FixtureRequest
) -> None:
    busy, other = connect("ana"), connect()
    if "rerank" in work or "adapter" in work:
        request.getfixturevalue("models")
    busy.execute("select llm_generate('Hi', max_tokens => 1), llm_embed('Hi')")
    for clock in within(1):
        name = f"{other.info.dbname}_dropped"
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
    gap, end = run_program(server_python, str(script), source).split()
    assert float(gap) < 0.1
    assert end == "cancelled"
