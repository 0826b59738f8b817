"""Questions for all that is known of the user or a topic, and acknowledged statements, with the default models."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support import one

pytestmark = pytest.mark.shares

STATED = (
    "Hi! I am Tom and I run a small bakery in Leeds with my sister Priya.",
    "We have three ovens, and the oldest one breaks down every winter.",
    "My landlord, Mr Okafor, wants 1,850 pounds a month from January on.",
)


@pytest.fixture
def told(customer: psycopg.Connection) -> psycopg.Connection:
    for content in STATED:
        customer.execute("select memory_insert(%s)", (content,))
    customer.execute("select memory_insert('The harbor of Hamburg is on the Elbe.')")
    return customer


def reply(connection: psycopg.Connection, message: str) -> str:
    row = connection.execute("select llm_chat(%s, max_tokens => 32)", (message,)).fetchone()
    assert row is not None
    return str(row[0])


def conversation(connection: psycopg.Connection, messages: Sequence[str], reply: str) -> UUID:
    """Store a session in which each message got the same reply, and return it."""
    session: UUID = one(connection, "select session_start()")
    turns = [
        {"role": role, "content": text}
        for message in messages
        for role, text in (("user", message), ("assistant", reply))
    ]
    connection.execute("select count(*) from message_insert_many(%s, %s)", (session, Jsonb(turns)))
    return session


@pytest.mark.smoke
def test_the_users_name_is_known(told: psycopg.Connection) -> None:
    assert reply(told, "What is my name?") == "Your name is Tom."
    told.execute("select memory_insert('My name is Thomas Reed.')")
    assert reply(told, "Do you remember who I am?") == "Your name is Thomas Reed."


def test_a_name_that_was_never_told_is_unknown(customer: psycopg.Connection) -> None:
    customer.execute("select memory_insert('My sister is called Ella, and I am German.')")
    assert reply(customer, "What is my name?").startswith("I do not know")


def test_the_setting_of_the_name_comes_first(told: psycopg.Connection) -> None:
    reply(told, "Call me Captain.")
    assert "Captain" in reply(told, "What is my name?")


def test_another_users_name_is_not_told(told: psycopg.Connection, bob: psycopg.Connection) -> None:
    assert reply(bob, "What is my name?").startswith("I do not know")
    assert reply(bob, "What do you know about me?").startswith("I do not know")


def test_all_that_is_known_of_the_user_is_quoted(told: psycopg.Connection) -> None:
    answer = reply(told, "What do you know about me?")
    assert all(word in answer for word in ("Leeds", "ovens", "Okafor"))
    assert "Hamburg" not in answer


def test_all_that_is_known_of_a_topic_is_quoted(told: psycopg.Connection) -> None:
    answer = reply(told, "What do you know about my landlord?")
    assert "1,850" in answer
    assert "ovens" not in answer
    assert "Priya" in reply(told, "Who is Priya?")


def test_who_somebody_is_is_all_that_is_known_of_the_name(told: psycopg.Connection) -> None:
    told.execute("select memory_insert('My apprentice Wout starts on Tuesday at nine.')")
    told.execute("select memory_insert('Wout collects stamps.')")
    answer = reply(told, "Who is Wout?")
    assert "apprentice" in answer
    assert "stamps" in answer
    assert reply(told, "Who is Wout Bakker?").startswith("I do not know")


def test_a_yes_or_no_about_ones_own_matters_is_not_invented(told: psycopg.Connection) -> None:
    for question in ("Do I have a car?", "Am I married?", "Does my sister play the piano?"):
        assert reply(told, question).startswith("I do not know"), question
    assert not reply(told, "Do I have to pay taxes?").startswith("I do not know")
    assert not reply(told, "What do I do for a living?").startswith("A life")


def test_a_request_for_a_text_is_shown_no_memory_that_shares_a_word(told: psycopg.Connection) -> None:
    row = told.execute(
        "select memory_ids from llm_chat_detail('Write two sentences about ovens.', max_tokens => 4)"
    ).fetchone()
    assert row == ([],)


def test_an_unknown_topic_is_left_to_the_model(told: psycopg.Connection) -> None:
    row = told.execute(
        "select reply, memory_ids from llm_chat_detail('What do you know about photosynthesis?', max_tokens => 32)"
    ).fetchone()
    assert row is not None
    assert "photosynthesis" in row[0].lower()
    assert row[1] == []


def test_of_ones_own_matters_nothing_is_invented(told: psycopg.Connection) -> None:
    assert reply(told, "Tell me about my horse.").startswith("I do not know")


@pytest.mark.parametrize("scope", ["session", "work"])
def test_memories_beyond_the_scope_of_recall_are_not_told(told: psycopg.Connection, scope: str) -> None:
    told.execute("select setting_set('recall_scope', to_jsonb(%s::text))", (scope,))
    questions = ("What is my name?", "What do you know about me?", "What did I say about the ovens?")
    for question in questions:
        assert "I do not know" in reply(told, question), question


def test_a_chat_without_a_session_is_kept_to_its_own(told: psycopg.Connection) -> None:
    told.execute("""select setting_set('recall_scope', '"session"')""")
    row = told.execute(
        "select memory_ids from llm_chat_detail('How many ovens do we have?', max_tokens => 4)"
    )
    assert row.fetchone() == ([],)


def test_a_forgotten_or_expired_name_is_not_told(customer: psycopg.Connection) -> None:
    row = customer.execute("select memory_insert('My name is Thomas Reed.')").fetchone()
    customer.execute(
        "insert into memory (content, valid_to) values ('My name is Old Tom.', now() - interval '1 day')"
    )
    assert reply(customer, "What is my name?") == "Your name is Thomas Reed."
    customer.execute("select memory_forget(array[%s::bigint])", row)
    assert reply(customer, "What is my name?").startswith("I do not know")


def test_the_name_is_said_whatever_the_model_says(told: psycopg.Connection) -> None:
    for question in ("do you know my name", "Do you remember what I'm called?", "How should you address me?"):
        assert reply(told, question) == "Your name is Tom.", question
    assert reply(told, "What is my surname?").startswith("I do not know")


def test_memories_of_a_topic_are_quoted_though_recall_scores_them_lower(customer: psycopg.Connection) -> None:
    for content in (
        "The railway club meets every first Tuesday at the Methodist hall.",
        "By the way, the railway club now meets on Thursdays instead of Tuesdays.",
        "The annual fee of the railway club is 45 pounds.",
        "The club's fee went up to 52 pounds this year.",
    ):
        customer.execute("select memory_insert(%s)", (content,))
    answer = reply(customer, "What do you remember about the railway club?")
    assert answer.startswith("I remember: ")
    assert "Methodist" in answer
    assert "45" in answer


def test_a_yes_or_no_of_ones_own_is_not_denied(customer: psycopg.Connection) -> None:
    customer.execute("select memory_insert('I play the cello, and my cello was built in 1887 in Mirecourt.')")
    assert "I play the cello" in reply(customer, "Do I play the cello?")


def test_a_statement_with_a_relative_clause_is_no_question(customer: psycopg.Connection) -> None:
    customer.execute("select memory_insert('I share a flat in Rotterdam with my cousin Femke.')")
    for statement in (
        "The rent of the flat is 1,320 euros, half of which Femke pays.",
        "We have two daughters: Leila, who is a barrister, and Hana, who studies chemistry.",
    ):
        assert "I do not know" not in reply(customer, statement), statement


def test_what_was_said_in_this_conversation_is_told_too(customer: psycopg.Connection) -> None:
    row = customer.execute(
        "select session_id from llm_chat_detail('Hello, my name is Jonas Weber and I am a nurse.', max_tokens => 8)"
    ).fetchone()
    assert row is not None
    again = customer.execute("select llm_chat('What is my name?', %s, max_tokens => 32)", row).fetchone()
    assert again == ("Your name is Jonas Weber.",)


def test_a_statement_is_acknowledged_without_memories(told: psycopg.Connection) -> None:
    row = told.execute(
        "select reply, memory_ids from llm_chat_detail('Our oven from Italy broke down in March.', max_tokens => 32)"
    ).fetchone()
    assert row == ("I will remember that.", [])


@pytest.mark.parametrize("correction", ["No, it is 4417.", "oh wait its 4417"])
def test_a_correction_is_acknowledged(customer: psycopg.Connection, correction: str) -> None:
    session = one(customer, "select session_start()")
    customer.execute("select llm_chat('The code of my locker is 4471.', %s)", (session,))
    assert "remember that" in one(customer, "select llm_chat(%s, %s)", correction, session)


def test_a_general_question_after_many_statements_is_not_acknowledged(customer: psycopg.Connection) -> None:
    facts = [f"The window {at} of our house is {at} years old." for at in range(2, 18)]
    session = conversation(customer, facts, "I will remember that.")
    for question, answer in (
        ("What is the capital of Norway?", "Oslo"),
        ("What is the largest ocean?", "ocean"),
    ):
        assert answer.lower() in one(customer, "select llm_chat(%s, %s)", question, session).lower()


def test_what_no_memory_tells_is_unknown_late_in_a_conversation_too(customer: psycopg.Connection) -> None:
    facts = [f"The shelf {at} in the cellar is {at + 50} cm wide." for at in range(40)]
    session = conversation(customer, facts, "Noted.")
    assert one(customer, "select session_summarize(%s, 'extract')", session)
    told = one(customer, "select llm_chat('What is the shoe size of my uncle?', %s)", session)
    assert told.startswith("I do not know")
    assert "63" in one(customer, "select llm_chat('How wide is the shelf 13?', %s)", session)


def test_a_request_like_earlier_ones_is_not_taken_for_an_unknown_fact(customer: psycopg.Connection) -> None:
    requests = [f"Tell me a long story about number {at}." for at in range(3)]
    session = conversation(customer, requests, "The number is a special value in mathematics.")
    asked = "select action from llm_chat_detail('Tell me a long story about number 7.', %s, max_tokens => 4)"
    assert one(customer, asked, session) != "abstain"


def test_advice_is_given_without_memories_of_other_matters(told: psycopg.Connection) -> None:
    row = told.execute(
        "select memory_ids from llm_chat_detail('How do I bake bread?', max_tokens => 4)"
    ).fetchone()
    assert row == ([],)
