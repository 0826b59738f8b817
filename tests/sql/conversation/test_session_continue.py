"""Sessions of clients that resend the whole conversation."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, fails
from support.query import one

pytestmark = pytest.mark.usefixtures("scripted")
ASK = {"role": "user", "content": "What is the capital of France?"}
PARIS = {"role": "assistant", "content": "The capital of France is Paris."}


def find(connection: psycopg.Connection, *messages: dict[str, Any]) -> str:
    return str(one(connection, "select session_continue(%s)", Jsonb(list(messages))))


@pytest.fixture
def session(ana: psycopg.Connection) -> str:
    """A session of ana's with one question and its answer."""
    started = find(ana)
    ana.execute("select llm_chat(%s, %s, %s)", (ASK["content"], started, SCRIPTED_GENERATOR))
    return started


def test_what_was_said_leads_back_to_its_session(session: str, ana: psycopg.Connection) -> None:
    assert find(ana, ASK, PARIS) == session
    assert find(ana, ASK, PARIS | {"content": f"{PARIS['content']}\n"}) == session
    assert one(ana, "select count(*) from memory") == 2


@pytest.mark.parametrize(
    "messages",
    [
        [ASK],
        [PARIS],
        [ASK | {"content": "And of Italy?"}, PARIS],
        [{"role": "system", "content": "Be brief."}, ASK, PARIS],
        [ASK, PARIS, ASK, PARIS],
    ],
)
def test_other_words_start_a_session_that_holds_them(
    session: str, ana: psycopg.Connection, messages: list[dict[str, Any]]
) -> None:
    other = find(ana, *messages)
    assert other != session
    assert find(ana, *messages) == other or messages[-1]["role"] == "user"
    kept = one(ana, "select array_agg(content order by turn) from memory where session_id = %s", other)
    assert kept == [message["content"] for message in messages if message["role"] != "system"]


def test_nobody_is_led_to_anothers_session(
    session: str, ana: psycopg.Connection, bob: psycopg.Connection
) -> None:
    assert find(bob, ASK, PARIS) != session


def test_wrong_messages_are_refused(ana: psycopg.Connection) -> None:
    for messages, sqlstate in (
        ({}, "22023"),
        (["Hi"], "22023"),
        ([{"role": "robot", "content": "Hi"}], "22023"),
        ([{"role": "user", "content": ""}], "22023"),
        ([ASK | {"content": "word " * 80_000}], "54000"),
    ):
        with fails(sqlstate):
            ana.execute("select session_continue(%s)", (Jsonb(messages),))
