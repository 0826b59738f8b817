"""Statements that the user corrected: in the window, and recalled in another session."""

from __future__ import annotations

import psycopg
import pytest
from mindful.conversation.correction import FOLLOWING, _ends_asking
from support import Connect, one
from support.deletion import delete

pytestmark = pytest.mark.usefixtures("scripted")

SAID = ("The meeting with the bank is on Monday.", "No, it is on Thursday.", "Sorry, I mean Friday.")
QUESTION = "When is the meeting with the bank?"


def tell(connection: psycopg.Connection, *said: str) -> str:
    session = one(connection, "select session_start()")
    for text in said:
        connection.execute("select message_insert(%s, 'user', %s)", (session, text))
        connection.execute("select message_insert(%s, 'assistant', 'Noted.')", (session,))
    return str(session)


def shown(connection: psycopg.Connection, session: str | None = None) -> list[tuple[str, str]]:
    rows = connection.execute(
        "select part, content from session_context(coalesce(%s::uuid, session_start()), %s)",
        (session, QUESTION),
    )
    return [row for row in rows.fetchall() if row[0] in ("memory", "turn") and row[1] != "Noted."]


@pytest.mark.smoke
def test_a_statement_is_recalled_as_corrected_and_the_correction_alone_is_not(
    ana: psycopg.Connection,
) -> None:
    tell(ana, *SAID)
    assert shown(ana) == [("memory", "The meeting with the bank is on Friday.")]


def test_the_window_shows_it_as_corrected(ana: psycopg.Connection) -> None:
    found = shown(ana, tell(ana, *SAID))
    assert ("turn", "The meeting with the bank is on Friday.") in found
    assert not [text for _, text in found if "Monday" in text]


def test_what_is_stored_stays_as_it_was_said(ana: psycopg.Connection) -> None:
    session = tell(ana, *SAID)
    shown(ana, session)
    said = ana.execute("select content from memory where role = 'user' order by turn").fetchall()
    assert said == [(text,) for text in SAID]


def test_without_the_correction_it_reads_as_before(ana: psycopg.Connection) -> None:
    tell(ana, *SAID)
    delete(ana, "memory", "content like 'Sorry%%'")
    assert shown(ana) == [("memory", "The meeting with the bank is on Thursday.")]


def test_another_tenants_words_correct_nothing(ana: psycopg.Connection, connect: Connect) -> None:
    bob = connect("bob")
    tell(ana, SAID[0])
    tell(bob, *SAID)
    assert shown(ana) == [("memory", SAID[0])]


def test_what_is_known_of_the_user_is_as_corrected(ana: psycopg.Connection) -> None:
    tell(
        ana,
        "My name is Anna.",
        "Sorry, Anne.",
        "I live in Berlin.",
        "No, in Munich.",
        "I paid 4 and 5, how much is it?",
    )
    assert one(ana, "select llm_chat('What is my name?')") == "Your name is Anne."
    known = one(ana, "select llm_chat('What do you know about me?')")
    assert "I live in Munich." in known
    assert "Berlin" not in known
    assert "how much" not in known


@pytest.mark.parametrize("is_read_before", [False, True])
def test_no_fact_is_drawn_from_a_corrected_statement(ana: psycopg.Connection, is_read_before: bool) -> None:
    session = one(ana, "select session_start()")
    for text in ("I live in Berlin.", "No, in Munich.", "I work at Siemens."):
        if text.startswith("No") and is_read_before:
            ana.execute("select memory_consolidate()")
        ana.execute("select message_insert(%s, 'user', %s)", (session, text))
    ana.execute("select memory_consolidate()")
    facts = ana.execute("select content from memory where kind = 'fact'").fetchall()
    assert facts == [("The user works at Siemens.",)]


def test_a_request_to_forget_states_nothing(ana: psycopg.Connection) -> None:
    tell(ana, "Forget that the meeting with the bank is on Sunday.", "Forget that I live in Hull.", SAID[0])
    assert shown(ana) == [("memory", SAID[0])]
    assert "Hull" not in one(ana, "select llm_chat('What do you know about me?')")
    ana.execute("select memory_consolidate()")
    assert one(ana, "select count(*) from memory where kind = 'fact' and content like '%%Hull%%'") == 0


def test_an_abstention_is_recalled_last(ana: psycopg.Connection) -> None:
    session = one(ana, "select session_start()")
    for role, text in (("user", "Who is my dentist?"), ("assistant", "I do not know.")):
        ana.execute("select message_insert(%s, %s, %s)", (session, role, text))
    ana.execute("select memory_insert('Dr Wells is my dentist in Hull.')")
    found = [text for (text,) in ana.execute("select content from memory_recall('Who is my dentist?')")]
    assert found.index("I do not know.") == len(found) - 1


def test_sql_and_python_read_the_same_turns_as_questions(ana: psycopg.Connection) -> None:
    texts = (
        "Noon?",
        'Did you mean "noon?"',
        "(Noon?) ",
        "Noon? ",
        "Noon?\u00a0",
        "Noon.",
        "?" * 10_000,
        "?" * 9_999,
    )
    for text in texts:
        assert one(ana, "select _mindful.ends_asking(%s)", text) == _ends_asking(text), text[:20]


@pytest.mark.parametrize(
    ("before", "message", "question"),
    [
        ("My bike is old.", "My car is red, not blue.", "What color is my car?"),
        ("Tell me a joke.", "My sister is not married.", "Is my sister married?"),
        ("The dentist is nice.", "Sorry, the meeting with the bank is on Friday.", QUESTION),
    ],
)
def test_a_statement_that_only_looks_like_a_correction_is_recalled(
    ana: psycopg.Connection, before: str, message: str, question: str
) -> None:
    tell(ana, before, message)
    found = ana.execute(
        "select content from session_context(session_start(), %s) where part = 'memory'", (question,)
    )
    assert (message,) in found.fetchall()


def test_the_answer_to_a_question_corrects_no_statement(ana: psycopg.Connection) -> None:
    session = one(ana, "select session_start()")
    for role, text in (
        ("user", SAID[0]),
        ("assistant", "Shall I remind you at eight?"),
        ("user", "No, on Sunday."),
    ):
        ana.execute("select message_insert(%s, %s, %s)", (session, role, text))
    assert ("memory", SAID[0]) in shown(ana)


def test_the_database_reads_as_many_turns_around_a_message_as_a_correction_may_be_away(
    ana: psycopg.Connection,
) -> None:
    session = tell(ana, *(f"It is {number}." for number in range(FOLLOWING)))
    next_ = one(ana, "select said_next from _mindful.said_next(%s, 1)", session)
    assert len(next_) == FOLLOWING // 2  # the replies are no questions
    assert one(ana, "select count(*) from _mindful.said_before(%s, %s)", session, 2 * FOLLOWING) == FOLLOWING
