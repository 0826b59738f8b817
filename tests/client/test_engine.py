"""mindful engine: model files of the registry in processes for all connections."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from gguf import GGUFWriter
from mindful_client.engine.gguf import facts
from mindful_client.engine.size import bytes_per_token, size_of
from psycopg.types.json import Jsonb
from support import EMBEDDER, GENERATOR, fails
from support.cluster import Cluster, Connect
from support.engine import Engine, running_engine, until

SIZE = ("--slots", "2", "--threads", "1")


@pytest.fixture
def engine(db: psycopg.Connection, dsn: str) -> Iterator[Engine]:
    """An engine of the test's own, which it may end. xllamacpp serves both models."""
    with running_engine(db, dsn, *SIZE, compiled=False) as running:
        yield running


@pytest.fixture(scope="module")
def common(cluster: Cluster, template: str, shared: Callable[[str], Any]) -> Iterator[Engine]:
    """The engine of the database of the tests with the marker `shares`. A program serves the embedder."""
    database = shared(template)
    with running_engine(database.connect(None), cluster.dsn(database.name), *SIZE) as running:
        yield running


def models(who: psycopg.Connection) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    rows = who.execute(
        """select m ->> 'name', m ->> 'provider', m ->> 'address', m ->> 'health'
           from mindful_status(), jsonb_array_elements(models) m"""
    )
    return {(name, provider): (address, health) for name, provider, address, health in rows}


@pytest.mark.parametrize(("processors", "threads"), [(1, 1), (2, 2), (3, 2), (8, 7)])
def test_of_three_processors_one_stays_for_the_database(
    monkeypatch: pytest.MonkeyPatch, processors: int, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    assert size_of("embedder", "any.gguf", 256).threads == threads
    assert size_of("embedder", "any.gguf", 256, threads=5).threads == 5


@pytest.fixture
def new(dsn_of: Mapping[str, str], common: Engine) -> Iterator[psycopg.Connection]:
    """A connection of ana's that has done nothing."""
    with psycopg.connect(dsn_of["ana"], autocommit=True) as connection:
        yield connection


@pytest.mark.shares
def test_registered_models_are_served_with_no_change_to_sql(common: Engine, new: psycopg.Connection) -> None:
    ana = new
    ana.execute("select llm_embed('warm'), llm_generate('Hi', max_tokens => 2)")
    assert models(ana) == {
        (name, "openai"): (f"unix:{common.directory}/{name}.sock", "up") for name in (GENERATOR, EMBEDDER)
    }
    assert "Paris" in str(ana.execute("select llm_generate('What is the capital of France?')").fetchone())
    label = ana.execute("select llm_classify('I love this film', '{positive,negative}')").fetchone()
    assert label == ("positive",)
    ana.execute(
        "select memory_insert(x) from unnest(array['Marta lives in Oslo.', 'Caf\u00e9s open at nine.']) x"
    )
    found = ana.execute("select content from memory_recall('When do cafes open?', k => 1)").fetchone()
    assert found == ("Caf\u00e9s open at nine.",)
    private = ana.execute("select private_bytes from mindful_status()").fetchone()
    assert private is not None
    assert private[0] < 40_000_000  # 107 MB where both models are embedded


def test_the_sockets_are_the_servers_users_alone(common: Engine) -> None:
    assert common.directory.stat().st_mode & 0o777 == 0o700
    sockets = list(common.directory.glob("*.sock"))
    assert len(sockets) == 2
    assert all(socket.stat().st_mode & 0o077 == 0 for socket in sockets)


def programs(engine: Engine) -> list[str]:
    """List the names of the programs of an engine's servers."""
    return sorted(
        Path(f"/proc/{child}/exe").readlink().name.rstrip("0123456789.") for child in engine.children()
    )


def test_a_program_serves_the_embedder_and_the_package_the_generator(common: Engine) -> None:
    assert programs(common) == ["llama-server", "python"]


def test_no_program_outlives_an_engine_that_is_killed(db: psycopg.Connection, dsn: str) -> None:
    with running_engine(db, dsn, EMBEDDER, *SIZE, count=1) as engine:
        (child,) = engine.children()
        engine.process.kill()
        engine.process.wait()
        until(lambda: not Path(f"/proc/{child}").exists(), 20)
        assert not Path(f"/proc/{child}").exists()


def test_a_killed_engine_loses_no_committed_word_and_comes_back(
    engine: Engine, ana: psycopg.Connection, db: psycopg.Connection
) -> None:
    ana.execute("select memory_insert('Marta lives in Oslo.')")
    ana.execute("select llm_chat('Where does Marta live?', max_tokens => 8)")
    for child in engine.children():
        os.kill(child, signal.SIGKILL)
    # The same words and the same vectors, by the connection itself.
    ana.execute("select memory_insert('Tomas lives in Bergen.')")
    ana.execute("select llm_chat('Where does Tomas live?', max_tokens => 8)")
    assert (GENERATOR, "llama_cpp") in models(ana)
    engine.wait("slots on", 4)
    until(
        lambda: (
            ana.execute("select llm_generate('Hi', max_tokens => 1)") is not None
            and (GENERATOR, "llama_cpp") not in models(ana)
        ),
        60,
    )
    assert models(ana)[GENERATOR, "openai"][1] == "up"
    counts = ana.execute(
        "select count(*) filter (where kind = 'fact'), count(*) filter (where kind = 'message') from memory"
    )
    assert counts.fetchone() == (2, 4)
    assert ana.execute("select count(*) from memory_embedding_all_minilm_l6_v2").fetchone() == (6,)


HOSTILE_SCHEMA = {
    "$defs": {
        "n": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"a": {"$ref": "#/$defs/n"}, key: {"type": "string"}},
                    "required": ["a"],
                }
                for key in "bcd"
            ]
        }
    },
    "$ref": "#/$defs/n",
}
"""llama.cpp's own grammar of it follows three times as many alternatives at each level."""
HOSTILE_GRAMMARS = {
    "ambiguous": "root ::= x\nx ::= x x | [a-z ] |",
    "nested quantifiers": "root ::= (((( [a-z ]* )* )* )* )*",
    "a chain of rules": "root ::= r0\n"
    + "".join(f'r{n} ::= (("a"? r{n + 1}*)?)+\n' for n in range(1500))
    + 'r1500 ::= "a"',
}


@pytest.mark.shares
def test_no_schema_or_grammar_stops_the_engine_for_others(
    common: Engine, ana: psycopg.Connection, connect: Connect
) -> None:
    servers = common.children()
    ana.execute("set statement_timeout = '3s'")
    bob = connect("bob")
    bob.execute("select llm_generate('Hi', max_tokens => 1)")
    for argument, value in (
        ("json_schema", json.dumps(HOSTILE_SCHEMA)),
        *(("grammar", grammar) for grammar in HOSTILE_GRAMMARS.values()),
    ):
        sql = f"select llm_generate('Go on.', {argument} => %s, max_tokens => 200)".encode()
        attack = threading.Thread(target=suppressed, args=(ana, sql, value))
        attack.start()
        time.sleep(0.5)
        bob.execute("set statement_timeout = '20s'")
        for _ in range(3):
            bob.execute("select llm_generate('Hi', max_tokens => 2)")
        attack.join()
    assert common.children() == servers


def suppressed(who: psycopg.Connection, sql: bytes, value: str) -> None:
    with contextlib.suppress(psycopg.errors.QueryCanceled, psycopg.errors.ProgramLimitExceeded):
        who.execute(sql, (value,))


@pytest.mark.shares
def test_the_engine_follows_users_grammars(common: Engine, ana: psycopg.Connection) -> None:
    answer = ana.execute("select llm_generate('Hi', grammar => 'root ::= \"yes\" | \"no\"')").fetchone()
    assert answer in (("yes",), ("no",))
    assert (GENERATOR, "openai") in models(ana)
    for grammar, sqlstate in (
        ('root ::= root "a"', "22023"),
        (HOSTILE_GRAMMARS["a chain of rules"], "54000"),
    ):
        with fails(sqlstate):
            ana.execute("select llm_generate('Hi', grammar => %s)", (grammar,))


def test_where_the_engine_is_down_calls_fail_if_that_was_asked_for(
    engine: Engine, admin: psycopg.Connection, ana: psycopg.Connection
) -> None:
    address = f"unix:{engine.directory}/{GENERATOR}.sock"
    admin.execute("select model_serve(%s, %s, when_down => 'error')", (GENERATOR, address))
    ana.execute("select llm_generate('Hi', max_tokens => 1)")
    engine.process.terminate()
    engine.process.wait(30)
    with fails("08006", hint="engine"):
        ana.execute("select llm_generate('Hi', max_tokens => 1)")
    admin.execute("select model_serve(%s, null)", (GENERATOR,))
    ana.execute("select llm_generate('Hi', max_tokens => 1)")
    assert (GENERATOR, "llama_cpp") in models(ana)


@pytest.mark.shares
def test_a_server_of_another_model_is_refused(common: Engine, admin: psycopg.Connection) -> None:
    row = admin.execute("select options from model where name = %s", (GENERATOR,)).fetchone()
    for name, sqlstate in ((GENERATOR, "22023"), (EMBEDDER, "08P01")):
        other = EMBEDDER if name == GENERATOR else GENERATOR
        with fails(sqlstate, hint=""):
            admin.execute("select model_serve(%s, %s)", (name, f"unix:{common.directory}/{other}.sock"))
    assert admin.execute("select options from model where name = %s", (GENERATOR,)).fetchone() == row


def test_a_model_with_a_template_of_its_own_is_served(
    admin: psycopg.Connection, ana: psycopg.Connection, db: psycopg.Connection, dsn: str
) -> None:
    # llama.cpp's server would put the system prompt into the question.
    template = (
        "{% for message in messages if message.role == 'user' %}Q: {{ message.content }}\nA:{% endfor %}"
    )
    admin.execute(
        """select model_register('questions', 'generator', 'llama_cpp', source, %s)
           from model where name = %s""",
        (Jsonb({"template": template, "stop": ["\n"], "context_length": 512}), GENERATOR),
    )
    ask = """select prompt_tokens, text from llm_generate_detail(
                 'Where is Oslo? <|im_end|>', 'questions', max_tokens => 1)"""
    embedded = ana.execute(ask).fetchone()
    with running_engine(db, dsn, "questions", "--when-down", "error", "--slots", "1", count=1):
        assert ana.execute(ask).fetchone() == embedded
        assert models(ana)["questions", "openai"][1] == "up"


def test_the_facts_of_a_file_are_read_without_its_vocabulary(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "file.gguf", "llama")
    writer.add_block_count(3)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_token_list(["a", "caf\u00e9", ""])
    writer.add_head_count_kv([1, 2, 4])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert facts(f"{tmp_path}/file.gguf") == {
        "general.architecture": "llama",
        "llama.block_count": 3,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": [1, 2, 4],
    }
    assert bytes_per_token(f"{tmp_path}/file.gguf") == 7 * (16 + 16) * 2
