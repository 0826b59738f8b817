"""Errors of the client: their class, their SQLSTATE, and a hint that says what to do."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
import pytest
from mindful_client import (
    AsyncClient,
    Client,
    InvalidInputError,
    MindfulError,
    NotAllowedError,
    NotFoundError,
    NotReadyError,
    QueryCancelledError,
    UnavailableError,
)
from support import Connect
from support.cluster import Cluster

NOBODYS = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("method", "arguments", "expected", "sqlstate"),
    [
        ("memory_insert", {"content": ""}, InvalidInputError, "22023"),
        ("memory_insert", {"content": None}, InvalidInputError, "22004"),
        ("memory_insert", {"content": "x" * 300_000}, InvalidInputError, "54000"),
        ("memory_insert", {"content": "x", "kind": "dream"}, InvalidInputError, "22023"),
        ("memory_insert_many", {"memories": [{"contents": "x"}]}, InvalidInputError, "22023"),
        ("memory_insert_many", {"memories": None}, InvalidInputError, "22004"),
        ("memory_recall", {"query": "x", "k": 0}, InvalidInputError, "22023"),
        ("memory_recall", {"query": "x", "k": 2**40}, InvalidInputError, "22003"),
        ("llm_generate", {"prompt": "x", "model": "nobody"}, NotFoundError, "42704"),
        ("llm_generate", {"prompt": "x", "temperature": -1.0}, InvalidInputError, "22023"),
        ("llm_generate", {"prompt": "x " * 9000}, InvalidInputError, "54000"),
        ("llm_embed", {"content": "x", "model": "nobody"}, NotFoundError, "42704"),
        ("message_insert", {"session_id": NOBODYS, "role": "user", "content": "x"}, NotFoundError, "42704"),
        ("message_insert", {"session_id": "x", "role": "user", "content": "x"}, InvalidInputError, "22P02"),
        ("llm_chat", {"message": None, "session_id": None}, InvalidInputError, "22004"),
        ("llm_chat", {"message": "x", "session_id": NOBODYS}, NotFoundError, "42704"),
        ("llm_chat_stream", {"message": " "}, InvalidInputError, "22023"),
        ("llm_chat_stream", {"message": "x", "session_id": NOBODYS}, NotFoundError, "42704"),
        ("memory_attach", {"relation": "no_such_table", "content": "x"}, NotFoundError, "42P01"),
        ("memory_detach", {"relation": "pg_class"}, NotFoundError, "42704"),
        ("self_review", {"message_id": 2**40}, NotFoundError, "42704"),
        ("model_default_set", {"name": "nobody"}, NotAllowedError, "42501"),
    ],
)
@pytest.mark.usefixtures("quick")
@pytest.mark.shares
@pytest.mark.smoke
def test_errors_have_a_class_and_a_hint(
    dsn_of: Mapping[str, str],
    method: str,
    arguments: dict[str, object],
    expected: type[MindfulError],
    sqlstate: str,
) -> None:
    with Client(dsn_of["ana"]) as client:
        with pytest.raises(MindfulError) as caught:
            list(getattr(client, method)(**arguments))
        error = caught.value
        assert (type(error), error.sqlstate) == (expected, sqlstate)
        assert isinstance(error.__cause__, psycopg.Error)
        assert error.hint or sqlstate in {"22003", "22P02", "42P01"}  # PostgreSQL's own
        assert "\n" not in str(error)
        assert "iterator" not in str(error)
        assert not str(error).startswith("mindful:")
        client.memory_insert("The client can be used on.")


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("memory_insert", {"content": "a\0b"}),
        ("memory_insert", {"content": "a", "metadata": {"key": ["\0"]}}),
        ("memory_insert", {"content": "a", "metadata": {"a\0b": 1}}),
        ("memory_insert_many", {"memories": ({"content": "\0"},)}),
        ("llm_embed_many", {"contents": ["a", "\0"]}),
        ("chat_stream", {"session_id": NOBODYS, "message": "\0"}),
        ("memory_insert", {"content": "\udcff"}),
        ("llm_embed_many", {"contents": "one text"}),
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_what_is_no_text_is_refused_before_the_server_is_asked(
    kind: type, method: str, arguments: dict[str, object]
) -> None:
    call = getattr(kind("host=/nonexistent"), method)
    with pytest.raises(InvalidInputError) as caught:
        await call(**arguments)
    assert caught.value.sqlstate in {"22021", "22023"}
    assert caught.value.hint


def test_what_is_missing_on_the_server_is_said(
    cluster: Cluster, dsn_of: Mapping[str, str], db: psycopg.Connection
) -> None:
    with (
        Client(dsn_of["reader"]) as client,
        pytest.raises(NotAllowedError, match="permission denied") as caught,
    ):
        client.memory_insert("x")
    assert "mindful_user" in str(caught.value.hint)
    with (
        cluster.database() as bare,
        Client(cluster.dsn(bare)) as client,
        pytest.raises(NotReadyError) as missing,
    ):
        client.memory_insert("x")
    assert "CREATE EXTENSION mindful" in str(missing.value.hint)
    db.execute("alter function mindful.session_start rename to session_begin")
    with Client(dsn_of["ana"]) as client, pytest.raises(NotReadyError) as older:
        client.session_start()
    assert "differ in version" in str(older.value.hint)


def test_a_statement_timeout_is_a_cancel(connect: Connect) -> None:
    ana = connect("ana")
    ana.execute("set statement_timeout = '200ms'")
    with pytest.raises(QueryCancelledError):
        Client(ana).llm_generate("Tell me a long story.", max_tokens=1000)


def test_no_server_is_an_error_of_one_line() -> None:
    with Client("host=/nonexistent") as client, pytest.raises(UnavailableError) as caught:
        client.mindful_status()
    assert "\n" not in str(caught.value)
