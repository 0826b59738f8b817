"""Sessions of clients that resend the whole conversation."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from mindful.confidence.action import notice
from mindful.confidence.decision import Decision
from psycopg.types.json import Jsonb
from support import SCRIPTED_GENERATOR, fails
from support.clock import within
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


@pytest.mark.parametrize(
    ("probability", "calibrator_id", "is_ranked"),
    [(0.1, None, True), (0.3, 1, True), (0.6, 1, True), (0.9, 1, True), (1.0, 1, True), (0.5, None, False)],
)
def test_a_reply_that_was_shown_with_a_notice_leads_back_to_its_session(
    session: str, ana: psycopg.Connection, probability: float, calibrator_id: int | None, is_ranked: bool
) -> None:
    decision = Decision("m", False, {}, probability=probability, calibrator_id=calibrator_id)
    decision.is_ranked = is_ranked
    shown = PARIS | {"content": PARIS["content"] + notice(decision)}
    assert one(ana, "select _mindful.notice_removed(%s)", shown["content"]) == PARIS["content"]
    assert find(ana, ASK, shown) == session
    assert one(ana, "select count(*) from memory") == 2
    other = find(ana, ASK | {"content": "And of Italy?"}, shown)
    kept = one(ana, "select array_agg(content order by turn) from memory where session_id = %s", other)
    assert kept == ["And of Italy?", PARIS["content"]]


def test_what_only_looks_like_a_notice_is_kept(ana: psycopg.Connection) -> None:
    for text in (
        "See [1].",
        "a\n\n[I am sure.]",
        "[I am not sure about this.]",
        "a [I am not sure about this.]",
        "]",
        "",
    ):
        assert one(ana, "select _mindful.notice_removed(%s)", text) == text
    asked = ASK | {"content": "Say this:\n\n[I am not sure about this.]"}
    kept = one(ana, "select content from memory where session_id = %s", find(ana, asked))
    assert kept == asked["content"]


def test_a_message_with_spaces_around_it_is_the_same_again(ana: psycopg.Connection) -> None:
    started = find(ana)
    asked = ASK | {"content": f"  {ASK['content']}\n"}
    ana.execute("select llm_chat(%s, %s, %s)", (asked["content"], started, SCRIPTED_GENERATOR))
    assert find(ana, asked, PARIS) == started


def test_a_long_conversation_goes_on(ana: psycopg.Connection) -> None:
    talk = [
        {"role": role, "content": f"{role} {number} " + "word " * 40}
        for number in range(2000)
        for role in ("user", "assistant")
    ]
    started = find(ana, *talk)
    ana.execute("select message_insert(%s, 'user', 'More.')", (started,))
    ana.execute("select message_insert(%s, 'assistant', 'Yes.')", (started,))
    longer = [*talk, {"role": "user", "content": "More."}, {"role": "assistant", "content": "Yes."}]
    for clock in within(0.5):
        clock.start()
        assert find(ana, *longer) == started
        clock.stop()


def test_a_message_that_is_stored_in_parts_is_found_again(ana: psycopg.Connection) -> None:
    talk = [ASK | {"content": "word " * 60_000}, PARIS]
    started = find(ana, *talk)
    assert one(ana, "select count(*) from memory where session_id = %s", started) > 2
    assert find(ana, *talk) == started


def test_wrong_messages_are_refused(ana: psycopg.Connection) -> None:
    for messages, sqlstate in (
        ({}, "22023"),
        (["Hi"], "22023"),
        ([{"role": "robot", "content": "Hi"}], "22023"),
        ([{"role": "user", "content": ""}], "22023"),
        ([ASK | {"content": "word " * 210_000}], "54000"),
        ([ASK] * 10_001, "54000"),
    ):
        with fails(sqlstate):
            ana.execute("select session_continue(%s)", (Jsonb(messages),))
